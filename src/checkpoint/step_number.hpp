// Numbers inside the names of folders.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flatshard::detail {

/// All of `text` as a number in its only spelling: digits, no leading zero.
template <class Number>
std::optional<Number> only_number(std::string_view text, int base) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number, base);
  if (text.empty() || code != std::errc() || stop != end) return std::nullopt;
  return number;
}

inline std::optional<std::int64_t> step_number(std::string_view text) {
  const auto number = only_number<std::int64_t>(text, 10);
  const bool is_plain = !text.empty() && text[0] != '-' && (text[0] != '0' || text.size() == 1);
  return number && is_plain ? number : std::nullopt;
}

/// 16 hexadecimal digits, small letters.
inline std::optional<std::uint64_t> save_number(std::string_view text) {
  const bool is_plain =
      text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos;
  return is_plain ? only_number<std::uint64_t>(text, 16) : std::nullopt;
}

}  // namespace flatshard::detail
