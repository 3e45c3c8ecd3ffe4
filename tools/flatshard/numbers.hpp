// Numbers of the command line, read whole and strictly. All throw RequestError naming the option.
#pragma once

#include <cstdint>
#include <string>

namespace flatshard_tool {

std::int64_t whole_number(const std::string& option, const std::string& text, std::int64_t least,
                          std::int64_t most);
/// Finite and at least `least`; above it when `above`.
double real_number(const std::string& option, const std::string& text, double least, bool above);
/// "5GB" (10^9), "5GiB" (2^30), "500"; at least 1.
std::int64_t byte_count(const std::string& option, const std::string& text);

}  // namespace flatshard_tool
