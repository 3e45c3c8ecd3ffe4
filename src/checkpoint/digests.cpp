#include "digests.hpp"

#include <flatshard/io/crc32c.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>

namespace flatshard::detail {

static_assert(std::is_trivially_copyable_v<RangeDigest>);
static_assert(std::has_unique_object_representations_v<RangeDigest>);

std::string to_text(std::span<const RangeDigest> digests) {
  return {reinterpret_cast<const char*>(digests.data()), digests.size_bytes()};
}

std::vector<RangeDigest> digests_from(const std::vector<std::string>& texts) {
  std::vector<RangeDigest> all;
  for (const std::string& text : texts) {
    const std::size_t before = all.size();
    all.resize(before + text.size() / sizeof(RangeDigest));
    if (!text.empty()) std::memcpy(&all[before], text.data(), text.size());
  }
  return all;
}

CombinedDigests::CombinedDigests(std::vector<RangeDigest> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(), [](const RangeDigest& a, const RangeDigest& b) {
    return std::tuple(a.file, a.position, a.first) < std::tuple(b.file, b.position, b.first);
  });
}

std::optional<std::uint32_t> CombinedDigests::of(int file, int position, Bytes bytes) const {
  const auto before = [](const RangeDigest& range, const std::tuple<int, int>& tensor) {
    return std::tuple(range.file, range.position) < tensor;
  };
  auto range = std::lower_bound(ranges_.begin(), ranges_.end(), std::tuple(file, position), before);
  std::uint32_t crc = 0;
  Bytes done = 0;
  for (; range != ranges_.end() && range->file == file && range->position == position; ++range) {
    if (range->first != done) return std::nullopt;
    crc = combine_crc32c(crc, range->crc, range->bytes);
    done += range->bytes;
  }
  if (done != bytes) return std::nullopt;
  return crc;
}

}  // namespace flatshard::detail
