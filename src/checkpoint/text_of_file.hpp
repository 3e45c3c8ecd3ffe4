#pragma once

#include <flatshard/io/file.hpp>

#include <string>

namespace flatshard::detail {

/// Bytes [offset, offset + bytes) of a file, read in pieces: a size that is not true of the file
/// does not size a buffer. Throws IoError.
std::string text_of_file(const File& file, Bytes offset, Bytes bytes);

}  // namespace flatshard::detail
