// From the events of an index's JSON to a checked index.
#pragma once

#include "json_events.hpp"

#include <flatshard/checkpoint/shard_index.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace flatshard::safetensors {

class IndexHandler final : public flatshard::detail::JsonHandler {
 public:
  IndexHandler(const ReadLimits& limits, std::string_view path) : limits_(limits), path_(path) {}

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

  ShardIndex take();
  /// What the JSON reader refused, with its place in this file.
  FormatError format_error(const flatshard::detail::JsonError& error) const;

 private:
  // The innermost container that is open. Skipped: anything inside an unknown field.
  enum class Place : std::uint8_t { Outside, InIndex, InMetadata, InWeightMap, InSkipped };
  // What the last key announced.
  enum class Key : std::uint8_t { MetadataKey, WeightMapKey, TotalSizeKey, TensorKey, UnknownKey };

  bool skipping() const;
  void begin_skipped();
  void leave_container();
  void begin_tensor(std::string& name);
  std::string current_tensor() const;  // empty: none
  [[noreturn]] void refuse_value(const char* found) const;
  [[noreturn]] void refuse_number(const char* found) const;
  [[noreturn]] void refuse(Fault fault, const std::string& message) const;

  const ReadLimits& limits_;
  std::string path_;
  Place place_ = Place::Outside;
  Place skipped_from_ = Place::Outside;
  Key key_ = Key::MetadataKey;
  std::int64_t skipped_depth_ = 0;
  bool has_weight_map_ = false;
  ShardIndex index_;
};

}  // namespace flatshard::safetensors
