// Where blocks lie: one after the other, but no two streams that a loop reads together collide.
#pragma once

#include "plan_bytes.hpp"

namespace flatshard::detail {

/// Adds blocks to a Plan's arena. Streams of one loop whose addresses differ by almost a multiple
/// of 2^27 bytes share cache sets on some processors (DESIGN.md, Host kernels); a block that would
/// begin such a stream begins a few skews later.
class Arena {
 public:
  explicit Arena(Plan& plan) : plan_(plan) {}

  /// Blocks added from here on are streamed together, apart from earlier ones.
  void begin_group() { streams_.clear(); }
  /// Adds a block. Rank r streams it from r * stride on: the own slice of what is whole.
  void add(Role role, int owner, int index, Bytes bytes, Bytes stride = 0);
  /// Rounds the arena's end up.
  void finish() { plan_.arena_bytes = round_up_bytes(plan_.arena_bytes); }

 private:
  struct StreamStart {
    Bytes offset;  // of rank 0
    Bytes stride;  // from rank to rank
  };
  Bytes place(Bytes stride) const;
  bool collides(StreamStart stream) const;

  Plan& plan_;
  std::vector<StreamStart> streams_;
};

}  // namespace flatshard::detail
