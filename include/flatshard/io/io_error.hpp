// What file operations throw.
#pragma once

#include <flatshard/core/error.hpp>
#include <flatshard/core/types.hpp>

#include <string>

namespace flatshard {

/// A file operation failed. what() is "operation: path, at byte offset: text of the errno".
class IoError : public Error {
 public:
  /// `code` is an errno, 0 for a file that ends too early; `offset` is -1 where there is none.
  /// `detail`, when given, ends the message.
  IoError(const std::string& operation, const std::string& path, Bytes offset, int code,
          const std::string& detail = {});

  /// "pwrite", "fsync", ...
  const std::string& operation() const noexcept { return operation_; }
  /// As it was opened.
  const std::string& path() const noexcept { return path_; }
  /// In bytes from the beginning of the file, -1: the operation has none.
  Bytes offset() const noexcept { return offset_; }
  int code() const noexcept { return code_; }  // errno; 0: the file ends too early

 private:
  std::string operation_;
  std::string path_;
  Bytes offset_;
  int code_;
};

}  // namespace flatshard
