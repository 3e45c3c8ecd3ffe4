// What reading throws when bytes came back that are not those that were written.
#pragma once

#include <flatshard/io/io_error.hpp>

#include <string>

namespace flatshard {

/// A block's bytes are not those of its last write, or not of the step that was asked for. code()
/// is EBADMSG. The memory that was read into holds nothing of use.
class IntegrityError : public IoError {
 public:
  /// `offset` of the block in the file, in bytes; `detail` says what does not agree.
  IntegrityError(const std::string& operation, const std::string& path, Bytes offset,
                 const std::string& detail);
};

}  // namespace flatshard
