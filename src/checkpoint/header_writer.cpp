#include <flatshard/checkpoint/safetensors.hpp>

#include "header_parts.hpp"
#include "json_text.hpp"

#include <flatshard/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace flatshard::safetensors {
namespace {

using flatshard::detail::append_json_string;
using flatshard::detail::in_quotes;

constexpr ReadLimits default_limits{};  // what a reader with the default limits takes

std::string about(const TensorSpec& tensor) {
  return "plan_header: tensor " + in_quotes(tensor.name) + ": ";
}

void check_name(const TensorSpec& tensor) {
  const std::string& name = tensor.name;
  FLATSHARD_EXPECTS(name != metadata_key, about(tensor) + "this name is reserved");
  FLATSHARD_EXPECTS(name.find('\0') == name.npos, about(tensor) + "a NUL in its name");
  FLATSHARD_EXPECTS(
      static_cast<std::int64_t>(name.size()) <= default_limits.name_bytes,
      about(tensor) + "its name is longer than " + std::to_string(default_limits.name_bytes));
}

Bytes checked_bytes(const TensorSpec& tensor) {
  FLATSHARD_EXPECTS(
      static_cast<std::int64_t>(tensor.shape.size()) <= default_limits.dimensions,
      about(tensor) + "more dimensions than " + std::to_string(default_limits.dimensions));
  for (const std::int64_t dimension : tensor.shape)
    FLATSHARD_EXPECTS(dimension >= 0, about(tensor) + "dimension " + std::to_string(dimension));
  const std::optional<std::int64_t> bits = bits_of(tensor.type, tensor.shape);
  FLATSHARD_EXPECTS(bits.has_value(), about(tensor) + "more bits than 2^63 - 1");
  FLATSHARD_EXPECTS(*bits % 8 == 0, about(tensor) + "its elements do not fill whole bytes");
  return *bits / 8;
}

template <class Items, class KeyOf>
void check_unique(const Items& items, KeyOf key_of) {
  std::set<std::string_view> seen;
  for (const auto& item : items)
    FLATSHARD_EXPECTS(seen.insert(key_of(item)).second,
                      "plan_header: " + in_quotes(key_of(item)) + " occurs twice");
}

Metadata with_format(const Metadata& given) {
  const auto is_format = [](const auto& item) { return item.first == "format"; };
  if (std::any_of(given.begin(), given.end(), is_format)) return given;
  Metadata metadata{{"format", "pt"}};
  metadata.insert(metadata.end(), given.begin(), given.end());
  return metadata;
}

/// Wider elements first, else as given.
std::vector<TensorEntry> laid_out(std::vector<TensorSpec> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return info(a.type).bits > info(b.type).bits;
  });
  std::vector<TensorEntry> entries;
  Bytes end = 0;
  for (TensorSpec& tensor : tensors) {
    check_name(tensor);
    const Bytes begin = end;
    FLATSHARD_EXPECTS(!__builtin_add_overflow(begin, checked_bytes(tensor), &end),
                      about(tensor) + "ends above 2^63 - 1");
    entries.push_back({std::move(tensor.name), tensor.type, std::move(tensor.shape), begin, end});
  }
  return entries;
}

void append_numbers(std::string& json, std::span<const std::int64_t> numbers) {
  json += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(numbers[i]);
  }
  json += ']';
}

void append_metadata(std::string& json, const Metadata& metadata) {
  append_json_string(json, metadata_key);
  json += ":{";
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    if (i > 0) json += ',';
    append_json_string(json, metadata[i].first);
    json += ':';
    append_json_string(json, metadata[i].second);
  }
  json += '}';
}

void append_tensor(std::string& json, const TensorEntry& tensor) {
  append_json_string(json, tensor.name);
  json += ":{\"dtype\":\"";
  json += name_of(tensor.type);
  json += "\",\"shape\":";
  append_numbers(json, tensor.shape);
  json += ",\"data_offsets\":";
  append_numbers(json, std::array{tensor.begin, tensor.end});
  json += '}';
}

std::string json_of(const Header& header) {
  std::string json = "{";
  if (!header.metadata.empty()) append_metadata(json, header.metadata);
  for (const TensorEntry& tensor : header.tensors) {
    if (json.size() > 1) json += ',';
    append_tensor(json, tensor);
  }
  return json + '}';
}

std::string little_endian(Bytes value) {
  std::string bytes;
  for (Bytes i = 0; i < header_length_bytes; ++i)
    bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF);
  return bytes;
}

}  // namespace

Header plan_header(const std::vector<TensorSpec>& tensors, const Metadata& metadata) {
  FLATSHARD_EXPECTS(static_cast<std::int64_t>(tensors.size()) <= default_limits.tensors,
                    "plan_header: more tensors than " + std::to_string(default_limits.tensors));
  check_unique(tensors, [](const TensorSpec& tensor) -> std::string_view { return tensor.name; });
  check_unique(metadata, [](const auto& item) -> std::string_view { return item.first; });
  Header header;
  header.metadata = with_format(metadata);
  header.tensors = laid_out(tensors);
  header.by_name = positions_by_name(header.tensors);
  const auto json_bytes = static_cast<Bytes>(json_of(header).size());
  header.data_begin = round_up(header_length_bytes + json_bytes, data_alignment);
  FLATSHARD_EXPECTS(
      header.data_begin - header_length_bytes <= default_limits.header_bytes,
      "plan_header: the header needs " + std::to_string(header.data_begin) + " bytes");
  const Bytes data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  FLATSHARD_EXPECTS(!__builtin_add_overflow(header.data_begin, data_bytes, &header.file_bytes),
                    "plan_header: the file is larger than 2^63 - 1 bytes");
  return header;
}

std::string encode(const Header& header) {
  const Bytes length = header.data_begin - header_length_bytes;
  std::string json = json_of(header);
  FLATSHARD_EXPECTS(static_cast<Bytes>(json.size()) <= length,
                    "encode: " + std::to_string(json.size()) + " bytes of JSON do not fit into " +
                        std::to_string(length));
  json.resize(static_cast<std::size_t>(length), ' ');
  return little_endian(length) + json;
}

}  // namespace flatshard::safetensors
