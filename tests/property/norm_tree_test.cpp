#include <flatshard/layout/norm_tree.hpp>

#include <doctest/doctest.h>

#include <map>

#include "cases.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

using Values = std::map<Elements, double>;  // canonical index -> element

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// The definition: sum of squares of [begin, begin + 2^level) as a perfect binary tree.
double reference(const Values& values, Elements begin, int level) {
  const Elements count = Elements{1} << level;
  const auto first = values.lower_bound(begin);
  if (first == values.end() || first->first >= begin + count) return 0;
  if (level == 0) return first->second * first->second;
  const double left = reference(values, begin, level - 1);
  const double right = reference(values, begin + count / 2, level - 1);
  return left + right;
}

/// Elements cut over ranks and buffers: runs and the buffers they lie in.
struct Cut {
  std::vector<std::vector<OwnedRun>> runs;                 // of each rank
  std::vector<std::vector<std::vector<double>>> contents;  // of each rank's buffers
};

Cut random_cut(Random& random, const Values& values) {
  const auto world = at(between(random, 1, 9));
  const auto buffers = at(between(random, 1, 3));
  Cut cut{std::vector<std::vector<OwnedRun>>(world),
          std::vector(world, std::vector<std::vector<double>>(buffers))};
  for (auto next = values.begin(); next != values.end();) {
    const auto rank = at(between(random, 0, static_cast<std::int64_t>(world) - 1));
    const auto buffer = at(between(random, 0, static_cast<std::int64_t>(buffers) - 1));
    auto& content = cut.contents[rank][buffer];
    content.resize(content.size() + at(between(random, 0, 5)), 0.0);  // a gap, as padding leaves
    OwnedRun run{static_cast<int>(buffer), static_cast<Elements>(content.size()), next->first, 0};
    const Elements wanted = between(random, 1, 90);
    while (next != values.end() && run.count < wanted && next->first == run.canonical + run.count) {
      content.push_back(next->second);
      ++run.count;
      ++next;
    }
    cut.runs[rank].push_back(run);
  }
  return cut;
}

double leaf_sum(const std::vector<double>& content, const NormLeaf& leaf) {
  Values present;
  for (Elements i = 0; i < leaf.count; ++i) present[i] = content.at(at(leaf.offset + i));
  return reference(present, 0, leaf.level);
}

/// Carries a plan out as the ranks would.
double evaluate(const NormPlan& plan, const Cut& cut) {
  std::vector<double> gathered(plan.ranks.size() * at(plan.nodes_per_rank), 0.0);
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankNorm& own = plan.ranks[rank];
    std::vector<double> values;
    for (const NormLeaf& leaf : own.leaves) {
      values.push_back(leaf_sum(cut.contents[rank].at(at(leaf.buffer)), leaf));
    }
    for (const TreeAdd& add : own.adds) values.at(at(add.into)) += values.at(at(add.from));
    REQUIRE(own.exported.size() <= at(plan.nodes_per_rank));
    for (std::size_t i = 0; i < own.exported.size(); ++i) {
      gathered[rank * at(plan.nodes_per_rank) + i] = values.at(at(own.exported[i]));
    }
  }
  for (const TreeAdd& add : plan.adds) gathered.at(at(add.into)) += gathered.at(at(add.from));
  return plan.root < 0 ? 0.0 : gathered.at(at(plan.root));
}

Values random_values(Random& random) {
  Values values;
  std::normal_distribution<double> normal;
  Elements start = 0;
  for (const Elements numel : random_numels(random)) {
    for (Elements i = 0; i < numel; ++i) values[start + i] = normal(random);
    start = round_up(start + numel, 32);
  }
  return values;
}

}  // namespace

TEST_CASE("the norm's bits do not depend on how elements are cut over ranks and buffers") {
  auto random = generator(10);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Values values = random_values(random);
    const double expected = reference(values, 0, 13);
    for (int again = 0; again < 5; ++again) {
      const Cut cut = random_cut(random, values);
      const NormPlan plan = plan_norm(cut.runs);
      CHECK(evaluate(plan, cut) == expected);
    }
  }
}

TEST_CASE("without elements the norm is zero") {
  const std::vector<std::vector<OwnedRun>> nobody(3);
  CHECK(plan_norm(nobody).root == -1);
}
