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

/// The first place without a collision; where there is none at all, the first place.
Bytes Region::place(Bytes stride, int group, Bytes alignment) const {
  const Bytes first = checked_round_up(end(), alignment, "make_plan: bytes");
  const auto others = streams_.find(group);
  if (others == streams_.end()) return first;
  for (Bytes moved = 0; moved < period; moved += skew)
    if (!collides({add_bytes(first, moved), stride}, others->second)) return first + moved;
  return first;
}

void Region::take(Bytes offset, Bytes bytes, Bytes stride, int group) {
  end_ = add_bytes(offset, bytes);
  streams_[group].push_back({offset, stride});
}

/// On any rank, with any stream of the group.
bool Region::collides(StreamStart stream, const std::vector<StreamStart>& others) const {
  return std::any_of(others.begin(), others.end(), [&](StreamStart other) {
    const Bytes apart = stream.offset - other.offset;
    const Bytes drift = stream.stride - other.stride;
    for (Rank rank = 0; rank < (drift == 0 ? 1 : shard_group_); ++rank)
      if (share_cache_sets(std::abs(apart + rank * drift))) return true;
    return false;
  });
}

void Arena::add(Role role, int owner, int index, Bytes bytes, Bytes stride, Wish wish) {
  if (bytes == 0) return;
  const Wanted wanted{{role, owner, index, 0, bytes}, stride, group_, wish.crosses, wish.alignment};
  if (wish.tier == Tier::Device)
    put(wanted, device_, Memory::Device, plan_.blocks);
  else if (wish.tier == Tier::Nvme)
    on_nvme_.push_back({role, owner, index, 0, bytes, Memory::Nvme});
  else
    on_host_.push_back(wanted);
}

void Arena::put(const Wanted& wanted, Region& region, Memory memory, std::vector<Block>& blocks) {
  Block block = wanted.block;
  block.offset = region.place(wanted.stride, wanted.group, wanted.alignment);
  block.memory = memory;
  region.take(block.offset, block.bytes, wanted.stride, wanted.group);
  blocks.push_back(block);
}

void Arena::finish(Bytes pinned_budget) {
  std::stable_partition(on_host_.begin(), on_host_.end(),
                        [](const Wanted& wanted) { return wanted.crosses; });
  std::vector<Block> pageable;
  for (const Wanted& wanted : on_host_) {
    const Bytes offset = pinned_.place(wanted.stride, wanted.group, wanted.alignment);
    const Bytes room = pinned_budget - offset;
    if (offset <= pinned_budget && round_up_bytes(wanted.block.bytes) <= room)
      put(wanted, pinned_, Memory::Pinned, plan_.blocks);
    else
      put(wanted, pageable_, Memory::Pageable, pageable);
  }
  plan_.blocks.insert(plan_.blocks.end(), pageable.begin(), pageable.end());
  plan_.blocks.insert(plan_.blocks.end(), on_nvme_.begin(), on_nvme_.end());
  plan_.arena_bytes = device_.end();
  plan_.pinned_bytes = pinned_.end();
  plan_.pageable_bytes = pageable_.end();
}

}  // namespace flatshard::detail
