#pragma once

#include <string>
#include <string_view>

namespace flatshard_tool {

/// The whole of a text file, at most 16 MiB; "-" is standard input. Throws FileError.
std::string read_text(const std::string& path);

/// Writes a new file; throws FileError when there is one already or it cannot be written.
void write_new_file(const std::string& path, std::string_view text);

}  // namespace flatshard_tool
