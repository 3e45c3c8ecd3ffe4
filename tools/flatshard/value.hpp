// What a JSON or YAML file says, as one kind of tree. Maps keep the order of the file and have no
// key twice.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace flatshard_tool {

struct Value;
using List = std::vector<Value>;
using Map = std::vector<std::pair<std::string, Value>>;

struct Value {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Map> data;

  Value() = default;
  Value(bool value) : data(value) {}                           // NOLINT: implicit by design
  Value(int value) : data(std::int64_t{value}) {}              // NOLINT
  Value(std::int64_t value) : data(value) {}                   // NOLINT
  Value(double value) : data(value) {}                         // NOLINT
  Value(const char* value) : data(std::string(value)) {}       // NOLINT
  Value(std::string value) : data(std::move(value)) {}         // NOLINT
  Value(std::string_view value) : data(std::string(value)) {}  // NOLINT
  Value(List value) : data(std::move(value)) {}                // NOLINT
  Value(Map value) : data(std::move(value)) {}                 // NOLINT

  bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data); }
  const double* number() const { return std::get_if<double>(&data); }
  const std::string* text() const { return std::get_if<std::string>(&data); }
  const List* list() const { return std::get_if<List>(&data); }
  const Map* map() const { return std::get_if<Map>(&data); }
  friend bool operator==(const Value&, const Value&) = default;
};

/// For map_of.
struct Entry {
  std::string_view key;
  Value value;
};

/// A map of these entries. (Pairs written out one by one take seconds to compile.)
Map map_of(std::initializer_list<Entry> entries);

/// The entry of that key; nullptr when there is none.
const Value* find(const Map& map, std::string_view key);

/// A key that the map has twice; nullptr when each is there once. In n log n: files are others'.
const std::string* repeated_key(const Map& map);

/// On one line: JSON.
std::string to_string(const Value& value);
/// For messages: no more than the beginning of a text.
std::string brief(std::string_view text);

/// The text of `source` (a name for messages), a JSON document. Throws RequestError with line and
/// column on bad syntax, a key that is given twice, more than 100 levels, a number that is too
/// large.
Value parse_json(std::string_view text, const std::string& source);
/// The same for one YAML document (Accelerate's dialect, YAML 1.1: yes, no, on, off are booleans).
/// Throws RequestError also when this program was built without a YAML parser.
Value parse_yaml(std::string_view text, const std::string& source);

/// Indented by two, with a newline at the end.
std::string write_json(const Value& value);
/// Block style, with a newline at the end; what YAML would read as another type is quoted.
std::string write_yaml(const Value& value);

}  // namespace flatshard_tool
