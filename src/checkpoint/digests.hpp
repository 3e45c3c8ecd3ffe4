// Digests of ranges, and what they combine to.
#pragma once

#include <flatshard/core/types.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flatshard::detail {

/// CRC32C of bytes [first, first + bytes) of a tensor in a file. Travels as it lies in memory.
struct RangeDigest {
  std::int32_t file = 0;
  std::int32_t position = 0;  // of the tensor in the file's header
  Bytes first = 0;
  Bytes bytes = 0;
  std::uint32_t crc = 0;
  std::uint32_t unused = 0;
  friend bool operator==(const RangeDigest&, const RangeDigest&) = default;
};

std::string to_text(std::span<const RangeDigest> digests);
std::vector<RangeDigest> digests_from(const std::vector<std::string>& texts);

/// Digests of whole tensors, made from ranges.
class CombinedDigests {
 public:
  explicit CombinedDigests(std::vector<RangeDigest> ranges);
  /// Of a tensor of `bytes` bytes; none when its ranges do not cover it exactly once.
  std::optional<std::uint32_t> of(int file, int position, Bytes bytes) const;

 private:
  std::vector<RangeDigest> ranges_;  // by file, position, first
};

}  // namespace flatshard::detail
