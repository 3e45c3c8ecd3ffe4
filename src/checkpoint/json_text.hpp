// Strings on their way into JSON and into messages.
#pragma once

#include <string>
#include <string_view>

namespace flatshard::detail {

/// True for UTF-8 as RFC 3629 has it: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// Appends the text as a JSON string. Throws UsageError when it is not UTF-8.
void append_json_string(std::string& json, std::string_view text);

/// The text in quotes for a message: escaped where it would not print, and cut when it is long.
std::string in_quotes(std::string_view text);

}  // namespace flatshard::detail
