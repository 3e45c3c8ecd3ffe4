// The norm's summation order: a perfect binary tree over the canonical index, cut where ranks own.
#pragma once

#include <flatshard/core/types.hpp>

#include <span>
#include <vector>

namespace flatshard {

/// A contiguous run of canonical positions that lies contiguously in one buffer of one rank.
struct OwnedRun {
  int buffer = 0;          // which flat gradient shard
  Elements offset = 0;     // of its first element in that buffer
  Elements canonical = 0;  // canonical index of its first element
  Elements count = 0;      // elements in the run
  friend constexpr bool operator==(const OwnedRun&, const OwnedRun&) = default;
};

/// A leaf that a kernel sums: the first `count` of 2^level aligned positions are present.
struct NormLeaf {
  int buffer = 0;       // which flat gradient shard
  Elements offset = 0;  // of its first element in that buffer
  Elements count = 0;   // elements present
  int level = 0;        // log2 of the positions it stands for
  friend constexpr bool operator==(const NormLeaf&, const NormLeaf&) = default;
};

/// values[into] += values[from].
struct TreeAdd {
  int into = 0;  // index of the value that changes
  int from = 0;  // index of the value that is added
  friend constexpr bool operator==(const TreeAdd&, const TreeAdd&) = default;
};

/// What one rank sums by itself: leaves (value k belongs to leaf k), adds among them, and which
/// values are its maximal nodes.
struct RankNorm {
  std::vector<NormLeaf> leaves;  // sorted by buffer
  std::vector<TreeAdd> adds;     // in order
  std::vector<int> exported;     // indices of values, one per maximal node, in canonical order
  friend bool operator==(const RankNorm&, const RankNorm&) = default;
};

/// The whole tree: gathered value of node i of rank r is at r * nodes_per_rank + i (absent ones are
/// zero); after `adds` in order, values[root] is S. With no element at all S is 0 (root == -1).
struct NormPlan {
  std::vector<RankNorm> ranks;  // what each rank sums
  int nodes_per_rank = 0;       // the most any rank exports
  std::vector<TreeAdd> adds;    // over gathered values, in order
  int root = -1;                // index of S among the gathered values
  friend bool operator==(const NormPlan&, const NormPlan&) = default;
};

/// S == the perfect binary tree over canonical positions of the present elements' squares, absent
/// positions counting as zero, for any way to cut the positions over ranks and buffers. Runs of all
/// ranks together must be disjoint.
NormPlan plan_norm(std::span<const std::vector<OwnedRun>> runs_of_rank);

}  // namespace flatshard
