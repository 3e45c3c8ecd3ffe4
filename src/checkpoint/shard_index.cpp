#include <flatshard/checkpoint/shard_index.hpp>

#include "header_parts.hpp"
#include "index_handler.hpp"
#include "json_text.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/io/folder.hpp>

#include <cstddef>
#include <set>
#include <utility>

namespace flatshard::safetensors {
namespace {

using flatshard::detail::append_json_string;
using flatshard::detail::in_quotes;

constexpr std::int64_t most_files = 99'999;  // five digits

std::string five_digits(std::int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - digits.size(), '0') + digits;
}

Bytes bytes_of(const TensorSpec& tensor) {
  const std::optional<std::int64_t> bits = bits_of(tensor.type, tensor.shape);
  FLATSHARD_EXPECTS(bits.has_value(), "split_into_files: tensor " + in_quotes(tensor.name) +
                                          ": more bits than 2^63 - 1");
  return *bits / 8;
}

void append_mapping(std::string& json, const std::string& tensor, const std::string& file) {
  FLATSHARD_EXPECTS(is_plain_name(file),
                    "encode: " + in_quotes(file) + " is not a plain file name");
  FLATSHARD_EXPECTS(tensor.find('\0') == tensor.npos,
                    "encode: tensor " + in_quotes(tensor) + ": a NUL in its name");
  json += "\n    ";
  append_json_string(json, tensor);
  json += ": ";
  append_json_string(json, file);
}

}  // namespace

ShardIndex parse_index(std::span<const std::byte> bytes, const ReadLimits& limits,
                       std::string_view path) {
  if (static_cast<Bytes>(bytes.size()) > limits.index_bytes)
    throw FormatError(Fault::IndexTooLarge,
                      "an index of " + std::to_string(bytes.size()) + " bytes",
                      {std::string(path), 0}, {__FILE__, __LINE__});
  IndexHandler handler(limits, path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    flatshard::detail::parse_json(text, limits.depth, handler);
  } catch (const flatshard::detail::JsonError& error) {
    throw handler.format_error(error);
  }
  return handler.take();
}

std::string encode(const ShardIndex& index) {
  std::string json = "{\n";
  if (index.total_size) {
    FLATSHARD_EXPECTS(*index.total_size >= 0, "encode: a negative total_size");
    json +=
        "  \"metadata\": {\n    \"total_size\": " + std::to_string(*index.total_size) + "\n  },\n";
  }
  json += "  \"weight_map\": {";
  std::set<std::string_view> seen;
  for (const auto& [tensor, file] : index.weight_map) {
    FLATSHARD_EXPECTS(seen.insert(tensor).second, "encode: " + in_quotes(tensor) + " occurs twice");
    if (seen.size() > 1) json += ',';
    append_mapping(json, tensor, file);
  }
  return json + "\n  }\n}\n";
}

std::string shard_file_name(std::string_view stem, std::int64_t position, std::int64_t count) {
  FLATSHARD_EXPECTS(
      0 <= position && position < count && count <= most_files,
      "shard_file_name: position " + std::to_string(position) + " of " + std::to_string(count));
  std::string name(stem);
  if (count > 1) name.append("-").append(five_digits(position + 1));
  if (count > 1) name.append("-of-").append(five_digits(count));
  return name + ".safetensors";
}

std::vector<std::vector<TensorSpec>> split_into_files(const std::vector<TensorSpec>& tensors,
                                                      Bytes max_bytes) {
  FLATSHARD_EXPECTS(max_bytes >= 1, "split_into_files: max_bytes is " + std::to_string(max_bytes));
  std::vector<std::vector<TensorSpec>> files;
  std::vector<TensorSpec> open;
  Bytes room = max_bytes;
  const auto close = [&] {
    files.push_back(std::exchange(open, {}));
    room = max_bytes;
  };
  for (const TensorSpec& tensor : tensors) {
    const Bytes bytes = bytes_of(tensor);
    if (bytes > max_bytes) {
      files.push_back({tensor});
      continue;
    }
    if (bytes > room) close();
    open.push_back(tensor);
    room -= bytes;
  }
  if (!open.empty() || files.empty()) close();
  return files;
}

}  // namespace flatshard::safetensors
