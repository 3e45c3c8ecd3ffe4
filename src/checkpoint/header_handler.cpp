#include "header_handler.hpp"

#include "header_parts.hpp"
#include "json_text.hpp"

#include <limits>
#include <utility>

namespace flatshard::safetensors {

using flatshard::detail::in_quotes;

bool HeaderHandler::skipping() const {
  return place_ == Place::InSkipped || (place_ == Place::InEntry && key_ == Key::UnknownKey);
}

void HeaderHandler::on_null() {
  if (skipping() || (place_ == Place::InHeader && key_ == Key::MetadataKey)) return;
  refuse_value("null");
}

void HeaderHandler::on_boolean(bool) {
  if (!skipping()) refuse_value("a boolean");
}

void HeaderHandler::on_negative(std::int64_t) {
  if (!skipping()) refuse_number("a number with a minus sign");
}

void HeaderHandler::on_real(double) {
  if (!skipping()) refuse_number("a number with a fraction or an exponent, or above 2^64 - 1");
}

void HeaderHandler::on_unsigned(std::uint64_t value) {
  if (skipping()) return;
  if (place_ == Place::InShape) {
    std::vector<std::int64_t>& shape = entry_.tensor.shape;
    const auto dimensions = static_cast<std::int64_t>(shape.size());
    if (dimensions >= limits_.dimensions) refuse(Fault::TooManyDimensions, "too many dimensions");
    shape.push_back(within_range(value));
  } else if (place_ == Place::InOffsets) {
    if (entry_.offsets.size() == 2) refuse(Fault::InvalidOffset, "data_offsets has a third number");
    entry_.offsets.push_back(within_range(value));
  } else {
    refuse_value("a number");
  }
}

std::int64_t HeaderHandler::within_range(std::uint64_t value) const {
  constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
  if (value > largest) refuse(Fault::InvalidNumber, "a number above 2^63 - 1");
  return static_cast<std::int64_t>(value);
}

void HeaderHandler::on_string(std::string& value) {
  if (skipping()) return;
  if (place_ == Place::InMetadata) {
    header_.metadata.back().second = std::move(value);
  } else if (place_ == Place::InEntry && key_ == Key::TypeKey) {
    set_type(value);
  } else {
    refuse_value("a string");
  }
}

void HeaderHandler::set_type(const std::string& name) {
  entry_.type = stored_type_named(name);
  if (!entry_.type) refuse(Fault::UnknownType, "the dtype " + in_quotes(name) + " is unknown");
}

void HeaderHandler::on_begin_object() { begin_container(true); }
void HeaderHandler::on_begin_array() { begin_container(false); }

void HeaderHandler::begin_container(bool is_object) {
  if (skipping()) {
    place_ = Place::InSkipped;
    ++skipped_depth_;
  } else if (place_ == Place::Outside && is_object) {
    place_ = Place::InHeader;
  } else if (place_ == Place::InHeader && is_object) {
    place_ = key_ == Key::MetadataKey ? Place::InMetadata : Place::InEntry;
  } else if (place_ == Place::InEntry && key_ == Key::ShapeKey && !is_object) {
    place_ = Place::InShape;
    entry_.has_shape = true;
  } else if (place_ == Place::InEntry && key_ == Key::OffsetsKey && !is_object) {
    place_ = Place::InOffsets;
  } else {
    refuse_value(is_object ? "an object" : "an array");
  }
}

void HeaderHandler::on_key(std::string& key) {
  if (place_ == Place::InHeader) begin_tensor_or_metadata(key);
  if (place_ == Place::InMetadata) header_.metadata.emplace_back(std::move(key), "");
  if (place_ == Place::InEntry) begin_field(key);
}

void HeaderHandler::begin_tensor_or_metadata(std::string& key) {
  key_ = key == metadata_key ? Key::MetadataKey : Key::TensorKey;
  if (key_ == Key::MetadataKey) return;
  const auto tensors = static_cast<std::int64_t>(header_.tensors.size());
  const auto name_bytes = static_cast<std::int64_t>(key.size());
  entry_ = {};
  entry_.tensor.name = std::move(key);
  const std::string& name = entry_.tensor.name;
  if (tensors >= limits_.tensors) refuse(Fault::TooManyTensors, "more tensors than the limit");
  if (name_bytes > limits_.name_bytes) refuse(Fault::InvalidName, "a name above the limit");
  if (name.find('\0') != name.npos) refuse(Fault::InvalidName, "a name with a NUL");
}

void HeaderHandler::begin_field(const std::string& key) {
  if (key == "dtype") {
    key_ = Key::TypeKey;
  } else if (key == "shape") {
    key_ = Key::ShapeKey;
  } else if (key == "data_offsets") {
    key_ = Key::OffsetsKey;
  } else {
    if (mode_ == Mode::Strict) refuse(Fault::UnknownField, "the field " + in_quotes(key));
    key_ = Key::UnknownKey;
    warn_of_field(key);
  }
}

void HeaderHandler::warn_of_field(const std::string& key) {
  if (++skipped_fields_ > most_warnings) return;
  header_.warnings.push_back("tensor " + in_quotes(entry_.tensor.name) + ": unknown field " +
                             in_quotes(key) + " skipped");
}

void HeaderHandler::on_end_array() {
  if (place_ == Place::InSkipped) return leave_skipped();
  if (place_ == Place::InOffsets && entry_.offsets.size() < 2)
    refuse(Fault::InvalidOffset, "data_offsets needs two numbers");
  place_ = Place::InEntry;
}

void HeaderHandler::on_end_object() {
  if (place_ == Place::InSkipped) return leave_skipped();
  if (place_ == Place::InEntry) finish_entry();
  place_ = place_ == Place::InHeader ? Place::Outside : Place::InHeader;
}

void HeaderHandler::leave_skipped() {
  if (--skipped_depth_ == 0) place_ = Place::InEntry;
}

}  // namespace flatshard::safetensors
