#include "json_text.hpp"

#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace flatshard::detail {
namespace {

constexpr char hex_digits[] = "0123456789abcdef";
constexpr std::size_t longest_quote = 100;

std::uint32_t byte_at(std::string_view text, std::size_t position) {
  return static_cast<unsigned char>(text[position]);
}

std::size_t length_announced_by(std::uint32_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  if (first >= 0xF0 && first < 0xF5) return 4;
  return 0;
}

bool is_scalar_of_length(std::uint32_t code, std::size_t length) {
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (length == 3) return code >= 0x800 && !surrogate;
  if (length == 4) return code >= 0x10000 && code <= 0x10FFFF;
  return true;  // shorter forms cannot be overlong: 0xC0 and 0xC1 announce nothing
}

/// Bytes of the character at `position`; 0 when there is no valid one.
std::size_t character_length(std::string_view text, std::size_t position) {
  const std::uint32_t first = byte_at(text, position);
  const std::size_t length = length_announced_by(first);
  if (length <= 1) return length;
  if (length > text.size() - position) return 0;
  std::uint32_t code = first & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t next = byte_at(text, position + i);
    if ((next & 0xC0) != 0x80) return 0;
    code = code << 6 | (next & 0x3F);
  }
  return is_scalar_of_length(code, length) ? length : 0;
}

bool needs_escape(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7F || character == '"' || character == '\\';
}

void append_escaped(std::string& out, char character) {
  const auto byte = static_cast<unsigned char>(character);
  if (character == '"' || character == '\\') {
    out += '\\';
    out += character;
  } else {
    out += "\\u00";
    out += hex_digits[byte >> 4];
    out += hex_digits[byte & 15];
  }
}

void append_hex(std::string& out, char character) {
  const auto byte = static_cast<unsigned char>(character);
  out += "\\x";
  out += hex_digits[byte >> 4];
  out += hex_digits[byte & 15];
}

/// One character, or one byte that is none.
void append_printable(std::string& out, std::string_view character, bool valid) {
  if (!valid) {
    append_hex(out, character[0]);
  } else if (needs_escape(character[0])) {
    append_escaped(out, character[0]);
  } else {
    out += character;
  }
}

}  // namespace

bool is_utf8(std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = is_ascii(text[at]) ? 1 : character_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

void append_json_string(std::string& json, std::string_view text) {
  FLATSHARD_EXPECTS(is_utf8(text), "JSON: " + in_quotes(text) + " is not UTF-8");
  json += '"';
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!needs_escape(text[at])) continue;
    json += text.substr(done, at - done);
    append_escaped(json, text[at]);
    done = at + 1;
  }
  json += text.substr(done);
  json += '"';
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < longest_quote) {
    const std::size_t length = character_length(text, at);
    append_printable(out, text.substr(at, std::max<std::size_t>(length, 1)), length > 0);
    at += std::max<std::size_t>(length, 1);
  }
  return out + (at < text.size() ? "\"..." : "\"");
}

}  // namespace flatshard::detail
