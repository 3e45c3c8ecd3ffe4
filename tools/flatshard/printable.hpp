#pragma once

#include <string>
#include <string_view>

namespace flatshard_tool {

/// `text` for a terminal: control characters as \u00xx, bytes that are no UTF-8 as \xnn. Names in
/// files, and messages that quote them, may hold anything.
std::string printable(std::string_view text);

}  // namespace flatshard_tool
