#pragma once

#include <stdexcept>

namespace flatshard_tool {

/// A command line or a configuration that cannot be meant: exit code 2.
class RequestError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A file that cannot be read or written, or is not what it should be: exit code 3.
class FileError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace flatshard_tool
