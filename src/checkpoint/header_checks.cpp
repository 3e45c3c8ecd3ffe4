#include "fault_of.hpp"
#include "header_handler.hpp"
#include "header_parts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

// What is checked when a tensor and when the header is complete, and how it is refused.

namespace flatshard::safetensors {

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
