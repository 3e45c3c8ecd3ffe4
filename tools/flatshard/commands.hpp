// What each subcommand is asked, and the function that answers. All throw RequestError or FileError
// (or flatshard::Error from reading files).
#pragma once

#include <string>

#include "outcome.hpp"
#include "setting.hpp"

namespace flatshard_tool {

struct TranslateRequest {
  std::string file;
  std::string output;  // a new file for the other framework's configuration; empty: none
  TranslateOptions options;
};
Outcome run_translate(const TranslateRequest& request);

}  // namespace flatshard_tool
