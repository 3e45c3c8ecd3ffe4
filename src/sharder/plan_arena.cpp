#include "plan_arena.hpp"

#include <algorithm>
#include <cstdlib>

namespace flatshard::detail {

namespace {

constexpr Bytes period = Bytes{1} << 27;  // bytes; streams a multiple of it apart share cache sets
constexpr Bytes skew = 128 * 1024;        // bytes; enough to part them

bool share_cache_sets(Bytes apart) {
  const Bytes beyond = apart % period;
  return apart >= period / 2 && std::min(beyond, period - beyond) < skew;
}

}  // namespace

void Arena::add(Role role, int owner, int index, Bytes bytes, Bytes stride) {
  if (bytes == 0) return;
  const Bytes offset = place(stride);
  plan_.blocks.push_back({role, owner, index, offset, bytes});
  plan_.arena_bytes = add_bytes(offset, bytes);
  streams_.push_back({offset, stride});
}

/// The first place without a collision; where there is none at all, the first place.
Bytes Arena::place(Bytes stride) const {
  const Bytes first = round_up_bytes(plan_.arena_bytes);
  for (Bytes moved = 0; moved < period; moved += skew)
    if (!collides({add_bytes(first, moved), stride})) return first + moved;
  return first;
}

/// On any rank, with any stream of the group.
bool Arena::collides(StreamStart stream) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](StreamStart other) {
    const Bytes apart = stream.offset - other.offset;
    const Bytes drift = stream.stride - other.stride;
    for (Rank rank = 0; rank < (drift == 0 ? 1 : plan_.shard_group); ++rank)
      if (share_cache_sets(std::abs(apart + rank * drift))) return true;
    return false;
  });
}

}  // namespace flatshard::detail
