#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "error.hpp"
#include "printable.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

using Json = nlohmann::json;
constexpr std::size_t most_levels = 100;

/// Builds a Value from the events of the parser.
class ValueBuilder {
 public:
  explicit ValueBuilder(const std::string& source) : source_(source) { open_.push_back(&root_); }

  bool null() { return put(Value()); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= INT64_MAX) return put(static_cast<std::int64_t>(value));
    return put(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Map()); }
  bool start_array(std::size_t) { return open(List()); }
  bool end_object() {
    if (const std::string* key = repeated_key(*open_.back()->map()))
      throw RequestError(fmt::format("{}: the key '{}' is given twice", source_, brief(*key)));
    return close();
  }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    std::get<Map>(open_.back()->data).emplace_back(std::move(name), Value());
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t, const std::string&, const Exception& error) {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    throw RequestError(fmt::format("{}: {}", source_, what.substr(what.find("] ") + 2)));
  }

  Value take() { return std::move(root_); }

 private:
  Value& place() {
    Value& parent = *open_.back();
    if (auto* list = std::get_if<List>(&parent.data)) return list->emplace_back();
    if (auto* map = std::get_if<Map>(&parent.data)) return map->back().second;
    return parent;
  }
  bool put(Value value) {
    place() = std::move(value);
    return true;
  }
  bool open(Value value) {
    if (open_.size() > most_levels)
      throw RequestError(fmt::format("{}: more than {} levels", source_, most_levels));
    Value& opened = place();
    opened = std::move(value);
    open_.push_back(&opened);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& source_;
  Value root_;
  std::vector<Value*> open_;  // the root, then the maps and lists that are not yet closed
};

void write_text(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes == 0)
      out += "\xef\xbf\xbd";  // U+FFFD: what is no UTF-8 cannot be in JSON
    else if (character.code == '"' || character.code == '\\')
      out.append(1, '\\').append(1, text[0]);
    else if (character.code < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(character.code));
    else
      out.append(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  out += '"';
}

/// Writes a tree: on one line, or indented.
class Writer {
 public:
  explicit Writer(bool indents) : indents_(indents) {}

  void write(const Value& value, int level) {
    if (const Map* map = value.map()) return write_map(*map, level);
    if (const List* list = value.list()) return write_list(*list, level);
    if (const std::string* text = value.text()) return write_text(out_, *text);
    if (const bool* flag = value.boolean())
      out_ += *flag ? "true" : "false";
    else if (const std::int64_t* integer = value.integer())
      out_ += std::to_string(*integer);
    else if (const double* number = value.number())
      write_number(*number);
    else
      out_ += "null";
  }
  std::string take() { return std::move(out_); }

 private:
  /// The shortest that reads back as the same double, and as a double; JSON has no infinities.
  void write_number(double number) {
    const std::string text = std::isfinite(number) ? fmt::format("{}", number) : "null";
    out_ += text;
    if (text.find_first_of(".en") == std::string::npos) out_ += ".0";
  }
  void write_map(const Map& map, int level) {
    out_ += '{';
    for (std::size_t i = 0; i < map.size(); ++i) {
      begin_entry(i, level);
      write_text(out_, map[i].first);
      out_ += indents_ ? ": " : ":";
      write(map[i].second, level + 1);
    }
    end(map.empty(), level, '}');
  }
  void write_list(const List& list, int level) {
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      begin_entry(i, level);
      write(list[i], level + 1);
    }
    end(list.empty(), level, ']');
  }
  void begin_entry(std::size_t index, int level) {
    if (index > 0) out_ += ',';
    break_line(level + 1);
  }
  void end(bool empty, int level, char bracket) {
    if (!empty) break_line(level);
    out_ += bracket;
  }
  void break_line(int level) {
    if (indents_) out_.append(1, '\n').append(static_cast<std::size_t>(2 * level), ' ');
  }

  bool indents_;
  std::string out_;
};

std::string dump(const Value& value, bool indents) {
  Writer writer(indents);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace

Map map_of(std::initializer_list<Entry> entries) {
  Map map;
  map.reserve(entries.size());
  for (const Entry& entry : entries) map.emplace_back(entry.key, entry.value);
  return map;
}

const Value* find(const Map& map, std::string_view key) {
  for (const auto& [name, value] : map)
    if (name == key) return &value;
  return nullptr;
}

const std::string* repeated_key(const Map& map) {
  std::vector<const std::string*> keys;
  keys.reserve(map.size());
  for (const auto& entry : map) keys.push_back(&entry.first);
  std::sort(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a < *b; });
  const auto same = std::adjacent_find(keys.begin(), keys.end(),
                                       [](const auto* a, const auto* b) { return *a == *b; });
  return same == keys.end() ? nullptr : *same;
}

std::string brief(std::string_view text) {
  constexpr std::size_t most = 100;
  return text.size() <= most ? std::string(text) : std::string(text.substr(0, most)) + "...";
}

std::string to_string(const Value& value) { return dump(value, false); }

std::string write_json(const Value& value) { return dump(value, true) + "\n"; }

Value parse_json(std::string_view text, const std::string& source) {
  ValueBuilder builder(source);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace flatshard_tool
