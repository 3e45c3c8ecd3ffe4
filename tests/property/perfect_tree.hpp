#pragma once

#include <flatshard/layout/norm_tree.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <map>

#include "cases.hpp"

namespace flatshard_test {

using Values = std::map<flatshard::Elements, double>;  // canonical index -> element

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// What padding holds: whoever reads it is found out.
inline constexpr double poison = std::numeric_limits<double>::quiet_NaN();

/// The definition: sum of squares of [begin, begin + 2^level) as a perfect binary tree.
inline double reference(const Values& values, flatshard::Elements begin, int level) {
  const flatshard::Elements count = flatshard::Elements{1} << level;
  const auto first = values.lower_bound(begin);
  if (first == values.end() || first->first >= begin + count) return 0;
  if (level == 0) return first->second * first->second;
  const double left = reference(values, begin, level - 1);
  const double right = reference(values, begin + count / 2, level - 1);
  return left + right;
}

/// Elements cut over ranks and buffers: runs and the buffers they lie in.
struct Cut {
  Cut(std::size_t world, std::size_t buffers)
      : runs(world), contents(world, std::vector<std::vector<double>>(buffers)) {}
  std::vector<std::vector<flatshard::OwnedRun>> runs;      // of each rank
  std::vector<std::vector<std::vector<double>>> contents;  // of each rank's buffers
};

inline double leaf_sum(const std::vector<double>& content, const flatshard::NormLeaf& leaf) {
  Values present;
  for (flatshard::Elements i = 0; i < leaf.count; ++i) {
    present[i] = content.at(at(leaf.offset + i));
  }
  return reference(present, 0, leaf.level);
}

/// Carries a plan out as the ranks would.
inline double evaluate(const flatshard::NormPlan& plan, const Cut& cut) {
  std::vector<double> gathered(plan.ranks.size() * at(plan.nodes_per_rank), 0.0);
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const flatshard::RankNorm& own = plan.ranks[rank];
    std::vector<double> values;
    for (const flatshard::NormLeaf& leaf : own.leaves) {
      values.push_back(leaf_sum(cut.contents[rank].at(at(leaf.buffer)), leaf));
    }
    for (const flatshard::TreeAdd& add : own.adds) {
      values.at(at(add.into)) += values.at(at(add.from));
    }
    REQUIRE(own.exported.size() <= at(plan.nodes_per_rank));
    for (std::size_t i = 0; i < own.exported.size(); ++i) {
      gathered[rank * at(plan.nodes_per_rank) + i] = values.at(at(own.exported[i]));
    }
  }
  for (const flatshard::TreeAdd& add : plan.adds) {
    gathered.at(at(add.into)) += gathered.at(at(add.from));
  }
  return plan.root < 0 ? 0.0 : gathered.at(at(plan.root));
}

}  // namespace flatshard_test
