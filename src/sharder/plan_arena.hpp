// Where blocks lie: one after the other, but no two streams that a loop reads together collide.
#pragma once

#include <map>

#include "plan_bytes.hpp"

namespace flatshard::detail {

/// Where a block is wanted.
struct Wish {
  Tier tier = Tier::Device;
  bool crosses = false;  // copied between device and host in every step: pinned before others
  Bytes alignment = block_alignment;  // on the host, of where it begins
};

/// Lays out one arena. Streams of one loop whose addresses differ by almost a multiple of 2^27
/// bytes share cache sets on some processors (DESIGN.md, Host kernels); a block that would begin
/// such a stream begins a few skews later.
class Region {
 public:
  explicit Region(int shard_group) : shard_group_(shard_group) {}

  /// Where a block may begin that rank r streams from r * stride on, beside others of its group.
  Bytes place(Bytes stride, int group, Bytes alignment = block_alignment) const;
  /// Takes what place() gave.
  void take(Bytes offset, Bytes bytes, Bytes stride, int group);
  Bytes end() const { return round_up_bytes(end_); }

 private:
  struct StreamStart {
    Bytes offset;  // of rank 0
    Bytes stride;  // from rank to rank
  };
  bool collides(StreamStart stream, const std::vector<StreamStart>& others) const;

  int shard_group_;
  Bytes end_ = 0;
  std::map<int, std::vector<StreamStart>> streams_;  // by group
};

/// Adds blocks to a Plan's arenas.
class Arena {
 public:
  explicit Arena(Plan& plan)
      : plan_(plan),
        device_(plan.shard_group),
        pinned_(plan.shard_group),
        pageable_(plan.shard_group) {}

  /// Blocks added from here on are streamed together, apart from earlier ones.
  void begin_group() { ++group_; }
  /// Cuts files for what was wanted on NVMe so far.
  void cut_slots(const Options& options) { plan_slots(plan_, on_nvme_, options); }
  /// Adds a block. Rank r streams it from r * stride on: the own slice of what is whole.
  void add(Role role, int owner, int index, Bytes bytes, Bytes stride = 0, Wish wish = {});
  /// Places what is wanted on the host, at most `pinned_budget` bytes of it pinned; rounds ends up.
  void finish(Bytes pinned_budget);

 private:
  struct Wanted {
    Block block;
    Bytes stride;
    int group;
    bool crosses;
    Bytes alignment;
  };
  void put(const Wanted& wanted, Region& region, Memory memory, std::vector<Block>& blocks);

  Plan& plan_;
  Region device_, pinned_, pageable_;
  int group_ = 0;
  std::vector<Wanted> on_host_;
  std::vector<Block> on_nvme_;
};

}  // namespace flatshard::detail
