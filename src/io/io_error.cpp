#include <flatshard/io/io_error.hpp>

#include <fmt/format.h>

#include <system_error>

namespace flatshard {
namespace {

std::string message_of(const std::string& operation, const std::string& path, Bytes offset,
                       int code, const std::string& detail) {
  std::string text = fmt::format("{}: {}", operation, path);
  if (offset >= 0) text += fmt::format(", at byte {}", offset);
  // The category's text is made without a shared buffer, unlike strerror's.
  text += ": " + (code == 0 ? "the file ends here" : std::generic_category().message(code));
  return detail.empty() ? text : text + " (" + detail + ")";
}

}  // namespace

IoError::IoError(const std::string& operation, const std::string& path, Bytes offset, int code,
                 const std::string& detail)
    : Error(message_of(operation, path, offset, code, detail)),
      operation_(operation),
      path_(path),
      offset_(offset),
      code_(code) {}

}  // namespace flatshard
