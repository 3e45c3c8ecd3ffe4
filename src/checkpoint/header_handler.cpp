#include "header_handler.hpp"

#include "fault_of.hpp"
#include "header_parts.hpp"
#include "json_text.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace flatshard::safetensors {
namespace {

constexpr std::int64_t most_warnings = 100;

using flatshard::detail::in_quotes;

}  // namespace

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

void HeaderHandler::finish_entry() {
  if (!entry_.type) refuse(Fault::MissingField, "no dtype");
  if (!entry_.has_shape) refuse(Fault::MissingField, "no shape");
  if (entry_.offsets.empty()) refuse(Fault::MissingField, "no data_offsets");
  TensorEntry& tensor = entry_.tensor;
  tensor.type = *entry_.type;
  tensor.begin = entry_.offsets[0];
  tensor.end = entry_.offsets[1];
  const std::optional<std::int64_t> bits = bits_of(tensor.type, tensor.shape);
  if (!bits) refuse(Fault::ShapeOverflow, "more elements or bits than 2^63 - 1");
  if (*bits % 8 != 0) refuse(Fault::Misaligned, "its elements do not fill whole bytes");
  if (tensor.end < tensor.begin) refuse(Fault::InvalidOffset, "data_offsets end before they begin");
  if (tensor.end - tensor.begin != *bits / 8) refuse_size(*bits / 8);
  header_.tensors.push_back(std::move(tensor));
  offsets_.push_back(header_length_bytes + offset);
}

Header HeaderHandler::take(Bytes data_begin, Bytes file_bytes) {
  const std::vector<std::size_t> order = order_of_bytes();
  check_coverage(order, data_begin, file_bytes);
  if (skipped_fields_ > most_warnings)
    header_.warnings.push_back("unknown fields skipped in all: " + std::to_string(skipped_fields_));
  std::vector<TensorEntry> tensors;
  for (const std::size_t position : order) tensors.push_back(std::move(header_.tensors[position]));
  header_.tensors = std::move(tensors);
  header_.by_name = positions_by_name(header_.tensors);
  header_.data_begin = data_begin;
  header_.file_bytes = file_bytes;
  return std::move(header_);
}

// Tensors without bytes come before the one that begins where they lie; else as in the text.
std::vector<std::size_t> HeaderHandler::order_of_bytes() const {
  std::vector<std::size_t> order(header_.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto bytes = [this](std::size_t position) {
    const TensorEntry& tensor = header_.tensors[position];
    return std::pair(tensor.begin, tensor.end);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes(a) < bytes(b); });
  return order;
}

void HeaderHandler::check_coverage(const std::vector<std::size_t>& order, Bytes data_begin,
                                   Bytes file_bytes) const {
  Bytes end = 0;
  for (const std::size_t position : order) {
    const TensorEntry& tensor = header_.tensors[position];
    if (tensor.begin != end) refuse_begin(position, end);
    end = tensor.end;
  }
  if (end != file_bytes - data_begin) refuse_end(end, data_begin, file_bytes);
}

void HeaderHandler::refuse_size(Bytes needed) const {
  const Bytes spanned = entry_.tensor.end - entry_.tensor.begin;
  refuse(Fault::SizeMismatch, "data_offsets span " + std::to_string(spanned) +
                                  " bytes, dtype and shape need " + std::to_string(needed));
}

void HeaderHandler::refuse_begin(std::size_t position, Bytes expected) const {
  const TensorEntry& tensor = header_.tensors[position];
  const std::string message = "begins at byte " + std::to_string(tensor.begin) +
                              " of the data section, the one before ends at " +
                              std::to_string(expected);
  throw FormatError(Fault::InvalidOffset, message, {path_, offsets_[position], tensor.name},
                    {__FILE__, __LINE__});
}

void HeaderHandler::refuse_end(Bytes end, Bytes data_begin, Bytes file_bytes) const {
  const std::string message = "the tensors have " + std::to_string(end) +
                              " bytes, the data section has " +
                              std::to_string(file_bytes - data_begin);
  throw FormatError(Fault::IncompleteBuffer, message, {path_, file_bytes}, {__FILE__, __LINE__});
}

FormatError HeaderHandler::format_error(const flatshard::detail::JsonError& error) const {
  const std::string& tensor = place_ == Place::InHeader ? error.key() : current_tensor();
  return {fault_of(error.kind()),
          error.what(),
          {path_, header_length_bytes + error.offset(), tensor},
          {__FILE__, __LINE__}};
}

std::string HeaderHandler::current_tensor() const {
  const bool outside = place_ == Place::Outside || place_ == Place::InMetadata;
  return outside || key_ == Key::MetadataKey ? "" : entry_.tensor.name;
}

void HeaderHandler::refuse_value(const char* found) const {
  refuse(Fault::WrongType, std::string(found) + " where none may be");
}

void HeaderHandler::refuse_number(const char* found) const {
  const bool expected = place_ == Place::InShape || place_ == Place::InOffsets;
  refuse(expected ? Fault::InvalidNumber : Fault::WrongType,
         std::string(found) + " where none may be");
}

void HeaderHandler::refuse(Fault fault, const std::string& message) const {
  throw FormatError(fault, message, {path_, header_length_bytes + offset, current_tensor()},
                    {__FILE__, __LINE__});
}

}  // namespace flatshard::safetensors
