#include "printable.hpp"

#include <fmt/format.h>

#include <array>

namespace flatshard_tool {
namespace {

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t bytes = lead < 0x80   ? 1
                            : lead < 0xc0 ? 0
                            : lead < 0xe0 ? 2
                            : lead < 0xf0 ? 3
                            : lead < 0xf8 ? 4
                                          : 0;
  if (bytes == 0 || bytes > text.size()) return {0, 0};
  char32_t code = bytes == 1 ? lead : lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool valid = code >= least[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return {valid ? bytes : 0, code};
}

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes == 0)
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else if (is_control(character.code))
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(character.code));
    else
      safe += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return safe;
}

}  // namespace flatshard_tool
