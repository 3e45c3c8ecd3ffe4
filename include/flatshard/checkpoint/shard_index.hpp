// The index of a sharded set: which file holds which tensor (model.safetensors.index.json), and how
// to split tensors into files, both as Hugging Face's libraries do it.
#pragma once

#include <flatshard/checkpoint/safetensors.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flatshard::safetensors {

/// {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}.
struct ShardIndex {
  std::optional<Bytes> total_size;                              // of the tensors' data
  std::vector<std::pair<std::string, std::string>> weight_map;  // in the order of the file; unique

  friend bool operator==(const ShardIndex&, const ShardIndex&) = default;
};

/// Reads and checks an index: JSON as strictly as headers, file names as is_plain_name wants them.
/// Fields other than the two above are ignored. Throws FormatError.
ShardIndex parse_index(std::span<const std::byte> bytes, const ReadLimits& limits = {},
                       std::string_view path = {});

/// The JSON text: parse_index(encode(i)) == i. Throws UsageError on what parse_index would refuse.
std::string encode(const ShardIndex& index);

/// "model.safetensors" when count == 1, else "model-00001-of-0000N.safetensors"; `position` from 0.
/// Requires 0 <= position < count <= 99999.
std::string shard_file_name(std::string_view stem, std::int64_t position, std::int64_t count);

/// Greedy, in the given order: a file is closed before the tensor that would bring its data above
/// `max_bytes`; a tensor above it has a file of its own, and the file before it stays open. Returns
/// each file's tensors; one empty file when there are none. Limits are decimal by custom: 5 GB is
/// 5'000'000'000. Throws UsageError when max_bytes < 1.
std::vector<std::vector<TensorSpec>> split_into_files(const std::vector<TensorSpec>& tensors,
                                                      Bytes max_bytes);

}  // namespace flatshard::safetensors
