// What moves where when one Sharder takes over from another: pure, the same on every rank.
#pragma once

#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/shard_map.hpp>

#include <map>
#include <vector>

namespace flatshard::detail {

/// A model and how it is sharded.
struct Sharded {
  const Plan& plan;
  const Model& model;
};

/// A run of elements of one tensor on its way.
struct Transfer {
  StateTensor from, to;                 // of the old and of the new
  Elements first = 0;                   // within both, row-major
  Elements count = 0;                   // > 0
  Rank root = in_place;                 // who sends them to everybody
  static constexpr Rank in_place = -1;  // nobody: every rank that needs them has them
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

struct CarryPlan {
  std::map<StateTensor, StateTensor> sources;  // of the new one's tensors, in the old
  std::vector<StateTensor> zeroed;             // states of parameters that begin to train
  std::vector<Transfer> transfers;             // every element of `sources` once, in order
};

/// Without transfers. Throws UsageError naming parameters and numbers for what does not fit
/// together.
CarryPlan plan_sources(const Sharded& from, const Sharded& to, const CarryOverOptions& options);
/// The whole plan; throws the same.
CarryPlan plan_carry_over(const Sharded& from, const Sharded& to, const CarryOverOptions& options);

}  // namespace flatshard::detail
