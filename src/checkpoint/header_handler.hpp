// From the events of a header's JSON to a checked header.
#pragma once

#include "json_events.hpp"

#include <flatshard/checkpoint/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard::safetensors {

/// The JSON begins at byte 8 of the file at `path`.
class HeaderHandler final : public flatshard::detail::JsonHandler {
 public:
  HeaderHandler(const ReadLimits& limits, Mode mode, std::string_view path)
      : limits_(limits), mode_(mode), path_(path) {}

  void on_null() override;
  void on_boolean(bool value) override;
  void on_unsigned(std::uint64_t value) override;
  void on_negative(std::int64_t value) override;
  void on_real(double value) override;
  void on_string(std::string& value) override;
  void on_begin_object() override;
  void on_key(std::string& key) override;
  void on_end_object() override;
  void on_begin_array() override;
  void on_end_array() override;

  /// The tensors in the order of their bytes, after checking that these cover the data section
  /// exactly.
  Header take(Bytes data_begin, Bytes file_bytes);

  /// What the JSON reader refused, with its place in this file.
  FormatError format_error(const flatshard::detail::JsonError& error) const;

 private:
  // The innermost container that is open. Skipped: anything inside an unknown field.
  enum class Place : std::uint8_t {
    Outside,
    InHeader,
    InMetadata,
    InEntry,
    InShape,
    InOffsets,
    InSkipped
  };
  // What the last key announced: in the header the first two, in Entry the others.
  enum class Key : std::uint8_t {
    MetadataKey,
    TensorKey,
    TypeKey,
    ShapeKey,
    OffsetsKey,
    UnknownKey
  };

  static constexpr std::int64_t most_warnings = 100;

  bool skipping() const;
  void begin_tensor_or_metadata(std::string& key);
  void begin_field(const std::string& key);
  void begin_container(bool is_object);
  void set_type(const std::string& name);
  void warn_of_field(const std::string& key);
  void leave_skipped();
  void finish_entry();
  std::int64_t within_range(std::uint64_t value) const;
  std::vector<std::size_t> order_of_bytes() const;
  void check_coverage(const std::vector<std::size_t>& order, Bytes data_begin,
                      Bytes file_bytes) const;

  std::string current_tensor() const;  // empty: none

  [[noreturn]] void refuse_size(Bytes needed) const;
  [[noreturn]] void refuse_begin(std::size_t position, Bytes expected) const;
  [[noreturn]] void refuse_end(Bytes end, Bytes data_begin, Bytes file_bytes) const;
  [[noreturn]] void refuse_value(const char* found) const;
  [[noreturn]] void refuse_number(const char* found) const;
  [[noreturn]] void refuse(Fault fault, const std::string& message) const;

  // One tensor as it is being read.
  struct Entry {
    TensorEntry tensor;
    std::optional<StoredType> type;
    bool has_shape = false;
    std::vector<std::int64_t> offsets;
  };

  const ReadLimits& limits_;
  Mode mode_;
  std::string path_;
  Place place_ = Place::Outside;
  Key key_ = Key::MetadataKey;
  std::int64_t skipped_depth_ = 0;
  std::int64_t skipped_fields_ = 0;
  Entry entry_;
  Header header_;               // tensors in the order of the text
  std::vector<Bytes> offsets_;  // in the file, of each tensor's end in the text
};

}  // namespace flatshard::safetensors
