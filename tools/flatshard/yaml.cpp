#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "error.hpp"
#include "value.hpp"

#ifdef FLATSHARD_TOOL_YAML
#include <yaml-cpp/yaml.h>
#endif

namespace flatshard_tool {
namespace {

template <std::size_t count>
bool is_one_of(std::string_view text, const std::array<std::string_view, count>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 5> nulls{"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 9> trues{"true", "True", "TRUE", "yes", "Yes",
                                                "YES",  "on",   "On",   "ON"};
constexpr std::array<std::string_view, 9> falses{"false", "False", "FALSE", "no", "No",
                                                 "NO",    "off",   "Off",   "OFF"};

template <class Number>
bool reads_as(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && stop == text.data() + text.size();
}

/// What a plain scalar stands for.
Value resolve(const std::string& text) {
  if (is_one_of(text, nulls)) return {};
  if (is_one_of(text, trues)) return true;
  if (is_one_of(text, falses)) return false;
  std::int64_t integer = 0;
  if (reads_as(text, integer)) return integer;
  double number = 0;
  if (reads_as(text, number) && std::isfinite(number)) return number;
  return text;
}

bool is_plain(const std::string& text) {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-,+";
  const bool starts_well = std::isalpha(static_cast<unsigned char>(text.empty() ? '-' : text[0])) ||
                           text.starts_with('_') || text.starts_with('/');
  return starts_well && text.find_first_not_of(letters) == std::string::npos &&
         resolve(text).text() != nullptr;
}

std::string scalar_text(const Value& value) {
  const std::string* text = value.text();
  return text != nullptr && is_plain(*text) ? *text : to_string(value);
}

bool is_nested(const Value& value) {
  return (value.map() != nullptr && !value.map()->empty()) ||
         (value.list() != nullptr && !value.list()->empty());
}

void write(std::string& text, const Value& value, const std::string& indent) {
  if (const Map* map = value.map()) {
    for (const auto& [key, entry] : *map) {
      text += indent + scalar_text(key) + ":";
      if (!is_nested(entry)) text += " " + scalar_text(entry) + "\n";
      if (!is_nested(entry)) continue;
      text += "\n";
      write(text, entry, indent + "  ");
    }
    return;
  }
  for (const Value& entry : *value.list()) {
    text += indent + "-";
    if (is_nested(entry)) text += "\n";
    if (is_nested(entry))
      write(text, entry, indent + "  ");
    else
      text += " " + scalar_text(entry) + "\n";
  }
}

#ifdef FLATSHARD_TOOL_YAML
constexpr int most_levels = 100;

/// Converts yaml-cpp's tree; aliases are followed, so their number is bounded too.
class Converter {
 public:
  explicit Converter(const std::string& source) : source_(source) {}

  Value convert(const YAML::Node& node, int level = 0) {
    if (++nodes_ > most_nodes || level > most_levels) fail(node, "is too large or too deep");
    if (node.IsMap()) return convert_map(node, level);
    if (node.IsSequence()) {
      List list;
      for (const YAML::Node& entry : node) list.push_back(convert(entry, level + 1));
      return list;
    }
    if (!node.IsScalar()) return {};
    return node.Tag() == "!" ? Value(node.Scalar()) : resolve(node.Scalar());  // "!": quoted
  }

 private:
  static constexpr int most_nodes = 100000;

  Value convert_map(const YAML::Node& node, int level) {
    Map map;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) fail(entry.first, "a key must be a word");
      map.emplace_back(entry.first.Scalar(), convert(entry.second, level + 1));
    }
    if (const std::string* key = repeated_key(map)) fail_twice(node, *key);
    return map;
  }
  [[noreturn]] void fail_twice(const YAML::Node& map, const std::string& key) const {
    YAML::Node last = map;
    for (const auto& entry : map)
      if (entry.first.Scalar() == key) last.reset(entry.first);
    fail(last, "the key '" + brief(key) + "' is given twice");
  }
  [[noreturn]] void fail(const YAML::Node& node, const std::string& what) const {
    throw RequestError(fmt::format("{}, line {}: {}", source_, node.Mark().line + 1, what));
  }

  const std::string& source_;
  int nodes_ = 0;
};
#endif

}  // namespace

std::string write_yaml(const Value& value) {
  if (!is_nested(value)) return scalar_text(value) + "\n";
  std::string text;
  write(text, value, "");
  return text;
}

#ifdef FLATSHARD_TOOL_YAML
Value parse_yaml(std::string_view text, const std::string& source) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) throw RequestError(source + ": holds more than one YAML document");
    return documents.empty() ? Value() : Converter(source).convert(documents[0]);
  } catch (const YAML::Exception& error) {
    throw RequestError(fmt::format("{}, line {}: {}", source, error.mark.line + 1, error.msg));
  }
}
#else
Value parse_yaml(std::string_view, const std::string& source) {
  throw RequestError(source +
                     ": this program was built without yaml-cpp and reads only JSON; convert the "
                     "file, or build with yaml-cpp installed (-Dyaml=enabled)");
}
#endif

}  // namespace flatshard_tool
