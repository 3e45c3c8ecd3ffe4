#include "json_events.hpp"

#include "json_text.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <exception>
#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

namespace flatshard::detail {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr std::size_t longest_message = 200;  // the library's messages quote the last token whole

/// Iterates over the text and tells how far it has come.
struct Reader {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** reached;

  reference operator*() const { return *at; }
  Reader& operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const Reader& other) const { return at == other.at; }
  bool operator!=(const Reader& other) const { return at != other.at; }
};

/// Between the JSON library and a handler: depth, duplicate keys, offsets.
class Events {
 public:
  using number_integer_t = std::int64_t;
  using number_unsigned_t = std::uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  Events(std::string_view text, std::int64_t max_depth, JsonHandler& handler)
      : text_(text), reached_(text.data()), max_depth_(max_depth), handler_(handler) {}

  Reader begin() { return {text_.data(), &reached_}; }
  Reader end() { return {text_.data() + text_.size(), &reached_}; }

  bool null() {
    handler().on_null();
    return true;
  }
  bool boolean(bool value) {
    handler().on_boolean(value);
    return true;
  }
  bool number_integer(number_integer_t value) {
    behind_number().on_negative(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) {
    behind_number().on_unsigned(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t&) {
    behind_number().on_real(value);
    return true;
  }
  bool string(string_t& value) {
    handler().on_string(value);
    return true;
  }
  bool binary(binary_t&) { return false; }  // not in JSON text
  bool start_object(std::size_t) {
    enter();
    handler().on_begin_object();
    return true;
  }
  bool key(string_t& name) {
    if (!keys_.back().insert(name).second) refuse_duplicate(name);
    handler().on_key(name);
    return true;
  }
  bool end_object() {
    keys_.pop_back();
    handler().on_end_object();
    return true;
  }
  bool start_array(std::size_t) {
    enter();
    handler().on_begin_array();
    return true;
  }
  bool end_array() {
    keys_.pop_back();
    handler().on_end_array();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const std::exception& error) {
    refuse(JsonError::Kind::Syntax, std::string(error.what()).substr(0, longest_message));
  }

 private:
  Bytes offset() const { return reached_ - text_.data(); }

  JsonHandler& handler() {
    handler_.offset = offset();
    return handler_;
  }

  // A number ends with a digit; the byte behind it, when there is one, has been read too.
  JsonHandler& behind_number() {
    const char last = *(reached_ - 1);
    handler_.offset = offset() - (last < '0' || last > '9');
    return handler_;
  }

  // Objects and arrays: an array's set of keys stays empty.
  void enter() {
    const auto depth = static_cast<std::int64_t>(keys_.size());
    if (depth >= max_depth_) refuse(JsonError::Kind::TooDeep, "nested deeper than the limit");
    keys_.emplace_back();
  }

  [[noreturn]] void refuse_duplicate(const std::string& key) const {
    const std::string message = "the key " + in_quotes(key) + " occurs twice";
    throw JsonError(JsonError::Kind::DuplicateKey, message, offset(), key);
  }

  [[noreturn]] void refuse(JsonError::Kind kind, const std::string& message) const {
    throw JsonError(kind, message, offset());
  }

  std::string_view text_;
  const char* reached_;
  std::int64_t max_depth_;
  JsonHandler& handler_;
  std::vector<std::unordered_set<std::string>> keys_;
};

[[noreturn]] void refuse(const std::string& message, std::size_t offset) {
  throw JsonError(JsonError::Kind::Syntax, message, static_cast<Bytes>(offset));
}

}  // namespace

void parse_json(std::string_view text, std::int64_t max_depth, JsonHandler& handler) {
  // The library skips a byte-order mark and takes a NUL for the end of its input.
  const std::size_t nul = text.find('\0');
  if (text.starts_with(byte_order_mark)) refuse("starts with a byte-order mark", 0);
  if (nul != text.npos) refuse("there is a NUL byte", nul);
  Events events(text, max_depth, handler);
  nlohmann::json::sax_parse(events.begin(), events.end(), &events);
}

}  // namespace flatshard::detail
