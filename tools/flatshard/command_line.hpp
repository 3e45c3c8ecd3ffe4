#pragma once

#include <functional>

#include "outcome.hpp"

namespace flatshard_tool {

/// What the command line asks for, ready to be called; --help and --version are answers too. Throws
/// RequestError with one sentence on anything that cannot be meant.
std::function<Outcome()> read_command_line(int argc, const char* const* argv);

}  // namespace flatshard_tool
