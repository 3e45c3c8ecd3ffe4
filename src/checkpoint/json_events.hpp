// Untrusted JSON as a sequence of events, without a tree in memory: what the readers of headers,
// shard indexes and manifests share. The only place that knows the JSON library is json_events.cpp.
#pragma once

#include <flatshard/core/types.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace flatshard::detail {

/// Receives the parts of a JSON text in their order. Whatever a handler throws leaves parse_json.
class JsonHandler {
 public:
  JsonHandler() = default;
  JsonHandler(const JsonHandler&) = delete;
  JsonHandler& operator=(const JsonHandler&) = delete;
  virtual ~JsonHandler() = default;

  virtual void on_null() = 0;
  virtual void on_boolean(bool value) = 0;
  virtual void on_unsigned(std::uint64_t value) = 0;  // digits only, without leading zeros
  virtual void on_negative(std::int64_t value) = 0;   // digits behind a minus sign; also -0
  virtual void on_real(double value) = 0;             // with fraction or exponent, or above 64 bits
  virtual void on_string(std::string& value) = 0;     // may be moved from
  virtual void on_begin_object() = 0;
  virtual void on_key(std::string& key) = 0;  // may be moved from
  virtual void on_end_object() = 0;
  virtual void on_begin_array() = 0;
  virtual void on_end_array() = 0;

  /// Bytes of the text up to and with the token of the current event.
  Bytes offset = 0;
};

/// What parse_json refuses by itself.
class JsonError : public std::runtime_error {
 public:
  enum class Kind : std::uint8_t { Syntax, TooDeep, DuplicateKey };

  JsonError(Kind kind, const std::string& message, Bytes offset, std::string key = {})
      : std::runtime_error(message), kind_(kind), offset_(offset), key_(std::move(key)) {}
  Kind kind() const noexcept { return kind_; }
  Bytes offset() const noexcept { return offset_; }
  const std::string& key() const noexcept { return key_; }  // of DuplicateKey, decoded

 private:
  Kind kind_;
  Bytes offset_;
  std::string key_;
};

/// Feeds one JSON value (RFC 8259, UTF-8 without a byte-order mark, white space around it allowed)
/// to the handler. Throws JsonError on anything else, on nesting deeper than `max_depth`, and on a
/// key that an object has already, compared decoded. Memory: a small multiple of the text's bytes.
void parse_json(std::string_view text, std::int64_t max_depth, JsonHandler& handler);

}  // namespace flatshard::detail
