#pragma once

#include <string>

namespace flatshard_tool {

/// The exit codes of the command.
inline constexpr int success = 0;
inline constexpr int differs = 1;       // diff: not equal; verify: not valid
inline constexpr int bad_request = 2;   // command line, configuration
inline constexpr int file_trouble = 3;  // cannot be read or written, or is damaged

/// What a subcommand prints to standard output, and its exit code.
struct Outcome {
  std::string text;
  int code = success;
};

}  // namespace flatshard_tool
