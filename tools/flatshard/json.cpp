#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t most_levels = 100;

/// Builds a Value from the events of the parser.
class Builder {
 public:
  explicit Builder(const std::string& source) : source_(source) { open_.push_back(&root_); }

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
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    auto& map = std::get<Map>(open_.back()->data);
    if (find(map, name) != nullptr)
      throw RequestError(fmt::format("{}: the key '{}' is given twice", source_, name));
    map.emplace_back(std::move(name), Value());
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

Json to_json(const Value& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<Data, List>) {
          Json list = Json::array();
          for (const Value& entry : data) list.push_back(to_json(entry));
          return list;
        } else if constexpr (std::is_same_v<Data, Map>) {
          Json map = Json::object();
          for (const auto& [key, entry] : data) map.push_back({key, to_json(entry)});
          return map;
        } else {
          return data;
        }
      },
      value.data);
}

std::string dump(const Value& value, int indent) {
  return to_json(value).dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

const Value* find(const Map& map, std::string_view key) {
  for (const auto& [name, value] : map)
    if (name == key) return &value;
  return nullptr;
}

std::string to_string(const Value& value) { return dump(value, -1); }

std::string write_json(const Value& value) { return dump(value, 2) + "\n"; }

Value parse_json(std::string_view text, const std::string& source) {
  Builder builder(source);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace flatshard_tool
