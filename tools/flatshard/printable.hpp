#pragma once

#include <string>
#include <string_view>

namespace flatshard_tool {

/// The character at the front of a text: its bytes, 0 when they are no UTF-8.
struct Character {
  std::size_t bytes;
  char32_t code;
};

/// Requires that there is a byte.
Character first_character(std::string_view text);

/// `text` for a terminal: control characters as \u00xx, bytes that are no UTF-8 as \xnn. Names in
/// files, and messages that quote them, may hold anything.
std::string printable(std::string_view text);

}  // namespace flatshard_tool
