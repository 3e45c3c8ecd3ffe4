#include "index_handler.hpp"

#include "fault_of.hpp"
#include "json_text.hpp"

#include <flatshard/io/folder.hpp>

#include <limits>
#include <utility>

namespace flatshard::safetensors {

using flatshard::detail::in_quotes;

bool IndexHandler::skipping() const {
  const bool in_known = place_ == Place::InIndex || place_ == Place::InMetadata;
  return place_ == Place::InSkipped || (in_known && key_ == Key::UnknownKey);
}

void IndexHandler::on_null() {
  if (!skipping()) refuse_value("null");
}

void IndexHandler::on_boolean(bool) {
  if (!skipping()) refuse_value("a boolean");
}

void IndexHandler::on_negative(std::int64_t) {
  if (!skipping()) refuse_number("a number with a minus sign");
}

void IndexHandler::on_real(double) {
  if (!skipping()) refuse_number("a number with a fraction or an exponent, or above 2^64 - 1");
}

void IndexHandler::on_unsigned(std::uint64_t value) {
  constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
  if (skipping()) return;
  if (place_ != Place::InMetadata) refuse_value("a number");
  if (value > largest) refuse(Fault::InvalidNumber, "a total_size above 2^63 - 1");
  index_.total_size = static_cast<Bytes>(value);
}

void IndexHandler::on_string(std::string& value) {
  if (skipping()) return;
  if (place_ != Place::InWeightMap) refuse_value("a string");
  if (!is_plain_name(value))
    refuse(Fault::InvalidFileName,
           in_quotes(value) + " is not the name of a file beside the index");
  index_.weight_map.back().second = std::move(value);
}

void IndexHandler::on_begin_object() {
  if (skipping()) {
    begin_skipped();
  } else if (place_ == Place::Outside) {
    place_ = Place::InIndex;
  } else if (place_ == Place::InIndex) {
    place_ = key_ == Key::MetadataKey ? Place::InMetadata : Place::InWeightMap;
    has_weight_map_ |= place_ == Place::InWeightMap;
  } else {
    refuse_value("an object");
  }
}

void IndexHandler::on_begin_array() {
  if (!skipping()) refuse_value("an array");
  begin_skipped();
}

void IndexHandler::begin_skipped() {
  if (place_ != Place::InSkipped) skipped_from_ = place_;
  place_ = Place::InSkipped;
  ++skipped_depth_;
}

void IndexHandler::on_key(std::string& key) {
  if (place_ == Place::InIndex)
    key_ = key == "metadata"     ? Key::MetadataKey
           : key == "weight_map" ? Key::WeightMapKey
                                 : Key::UnknownKey;
  if (place_ == Place::InMetadata) key_ = key == "total_size" ? Key::TotalSizeKey : Key::UnknownKey;
  if (place_ == Place::InWeightMap) begin_tensor(key);
}

void IndexHandler::begin_tensor(std::string& name) {
  key_ = Key::TensorKey;
  const auto tensors = static_cast<std::int64_t>(index_.weight_map.size());
  const auto name_bytes = static_cast<std::int64_t>(name.size());
  index_.weight_map.emplace_back(std::move(name), "");
  const std::string& tensor = index_.weight_map.back().first;
  if (tensors >= limits_.tensors) refuse(Fault::TooManyTensors, "more tensors than the limit");
  if (name_bytes > limits_.name_bytes) refuse(Fault::InvalidName, "a name above the limit");
  if (tensor.find('\0') != tensor.npos) refuse(Fault::InvalidName, "a name with a NUL");
}

void IndexHandler::on_end_array() { leave_container(); }
void IndexHandler::on_end_object() { leave_container(); }

void IndexHandler::leave_container() {
  if (place_ == Place::InSkipped) {
    if (--skipped_depth_ == 0) place_ = skipped_from_;
  } else {
    place_ = place_ == Place::InIndex ? Place::Outside : Place::InIndex;
  }
}

ShardIndex IndexHandler::take() {
  if (!has_weight_map_) refuse(Fault::MissingField, "no weight_map");
  return std::move(index_);
}

FormatError IndexHandler::format_error(const flatshard::detail::JsonError& error) const {
  const std::string tensor = place_ == Place::InWeightMap ? error.key() : "";
  return {
      fault_of(error.kind()), error.what(), {path_, error.offset(), tensor}, {__FILE__, __LINE__}};
}

std::string IndexHandler::current_tensor() const {
  return place_ == Place::InWeightMap ? index_.weight_map.back().first : "";
}

void IndexHandler::refuse_value(const char* found) const {
  refuse(Fault::WrongType, std::string(found) + " where none may be");
}

void IndexHandler::refuse_number(const char* found) const {
  refuse(place_ == Place::InMetadata ? Fault::InvalidNumber : Fault::WrongType,
         std::string(found) + " where none may be");
}

void IndexHandler::refuse(Fault fault, const std::string& message) const {
  throw FormatError(fault, message, {path_, offset, current_tensor()}, {__FILE__, __LINE__});
}

}  // namespace flatshard::safetensors
