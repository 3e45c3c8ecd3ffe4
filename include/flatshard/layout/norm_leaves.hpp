// The leaves of the norm's tree: owned runs cut into aligned nodes.
#pragma once

#include <flatshard/layout/norm_tree.hpp>

#include <bit>
#include <cstdint>

namespace flatshard::detail {

/// A leaf of any rank: 2^sum.level canonical positions from `begin`, a multiple of that.
struct PlacedLeaf {
  Elements begin = 0;
  NormLeaf sum;
  Rank rank = 0;
};

/// The greatest l with 2^l <= n. Requires n >= 1.
inline int log2_floor(Elements n) { return 63 - std::countl_zero(static_cast<std::uint64_t>(n)); }

/// Leaves of all ranks in canonical order: disjoint, each inside one run but for absent positions
/// at its end, and their counts add up to those of the runs. Throws UsageError on runs that overlap
/// or are negative.
std::vector<PlacedLeaf> cut_runs(std::span<const std::vector<OwnedRun>> runs_of_rank);

}  // namespace flatshard::detail
