// What the reader and the writer of headers share.
#pragma once

#include <flatshard/checkpoint/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace flatshard::safetensors {

inline constexpr Bytes header_length_bytes = 8;
inline constexpr std::string_view metadata_key = "__metadata__";

/// Header::by_name of these tensors.
std::vector<std::size_t> positions_by_name(const std::vector<TensorEntry>& tensors);

/// Bits of a tensor with these dimensions, none negative; nothing when the product of those that
/// are not zero, or the bits, are above 2^63 - 1.
std::optional<std::int64_t> bits_of(StoredType type, std::span<const std::int64_t> shape);

}  // namespace flatshard::safetensors
