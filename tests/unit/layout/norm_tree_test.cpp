#include <flatshard/core/error.hpp>
#include <flatshard/layout/canonical.hpp>
#include <flatshard/layout/flat_layout.hpp>
#include <flatshard/layout/norm_tree.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace flatshard;

namespace {

using Runs = std::vector<std::vector<OwnedRun>>;  // of each rank

}  // namespace

TEST_CASE("no element: no root") {
  CHECK(plan_norm(Runs{}) == NormPlan{});
  const NormPlan plan = plan_norm(Runs{{}, {{0, 0, 32, 0}}});
  CHECK(plan.root == -1);
  CHECK(plan.nodes_per_rank == 0);
  CHECK(plan.ranks == std::vector<RankNorm>(2));
}

TEST_CASE("one rank: a run is one node up to the next multiple of 32") {
  const NormPlan plan = plan_norm(Runs{{{0, 7, 0, 33}}});
  CHECK(plan.ranks[0] == RankNorm{{{0, 7, 33, 6}}, {}, {0}});
  CHECK(plan.root == 0);
  CHECK(plan.adds.empty());
}

TEST_CASE("a run is cut into maximal aligned nodes, which merge where they are siblings") {
  // [3, 8) = [3, 4) + [4, 8); the tree adds them at level 3.
  const NormPlan plan = plan_norm(Runs{{{0, 0, 3, 5}, {1, 0, 8, 1}}});
  CHECK(plan.ranks[0] ==
        RankNorm{{{0, 0, 1, 0}, {0, 1, 4, 2}, {1, 0, 1, 3}}, {{0, 1}, {0, 2}}, {0}});
}

TEST_CASE("a run never reaches over positions that someone else owns") {
  const NormPlan plan = plan_norm(Runs{{{0, 0, 0, 5}}, {{0, 0, 6, 2}}});
  CHECK(plan.ranks[0] == RankNorm{{{0, 0, 4, 2}, {0, 4, 1, 1}}, {}, {0, 1}});
  CHECK(plan.ranks[1] == RankNorm{{{0, 0, 2, 1}}, {}, {0}});
  CHECK(plan.nodes_per_rank == 2);
  CHECK(plan.adds == std::vector<TreeAdd>{{1, 2}, {0, 1}});
  CHECK(plan.root == 0);
}

TEST_CASE("runs that continue each other in one buffer are one") {
  const NormPlan plan = plan_norm(Runs{{{0, 8, 32, 32}, {0, 40, 64, 64}, {0, 0, 0, 8}}});
  CHECK(plan.ranks[0].leaves == std::vector<NormLeaf>{{0, 0, 8, 5}, {0, 8, 32, 5}, {0, 40, 64, 6}});
  const NormPlan whole = plan_norm(Runs{{{0, 64, 64, 64}, {0, 0, 0, 64}}});
  CHECK(whole.ranks[0].leaves == std::vector<NormLeaf>{{0, 0, 128, 7}});
}

TEST_CASE("leaves are sorted by buffer, exported nodes by position") {
  const NormPlan plan = plan_norm(Runs{{{1, 0, 0, 32}, {0, 0, 64, 32}}, {{0, 0, 32, 32}}});
  CHECK(plan.ranks[0].leaves == std::vector<NormLeaf>{{0, 0, 32, 5}, {1, 0, 32, 5}});
  CHECK(plan.ranks[0].exported == std::vector<int>{1, 0});
  CHECK(plan.adds == std::vector<TreeAdd>{{0, 2}, {0, 1}});
}

TEST_CASE("two owners of one element, and impossible runs, are refused") {
  CHECK_THROWS_WITH_AS(plan_norm(Runs{{{0, 0, 0, 8}}, {{0, 0, 7, 8}}}),
                       doctest::Contains("ranks 0 and 1 both own canonical element 7"), UsageError);
  CHECK_THROWS_AS(plan_norm(Runs{{{0, 0, 0, -1}}}), UsageError);
  CHECK_THROWS_AS(plan_norm(Runs{{{0, 0, -4, 1}}}), UsageError);
  CHECK_THROWS_AS(plan_norm(Runs{{{0, 0, 4, std::numeric_limits<Elements>::max()}}}), UsageError);
}

TEST_CASE("near 2^40 positions: few nodes, exact cover") {
  const Elements total = (Elements{1} << 40) - 32;
  Runs runs(3);
  const Partition partition(total, 3, 32);
  for (Rank rank = 0; rank < 3; ++rank) {
    const Elements count = partition.slice() - partition.padding(rank);
    runs[static_cast<std::size_t>(rank)] = {{0, 0, partition.range(rank).begin, count}};
  }
  const NormPlan plan = plan_norm(runs);
  Elements covered = 0;
  for (const RankNorm& rank : plan.ranks) {
    CHECK(rank.leaves.size() <= 80);
    for (const NormLeaf& leaf : rank.leaves) covered += leaf.count;
  }
  CHECK(covered == total);
}

TEST_CASE("a large model over many ranks: leaves grow with parameters and ranks, not elements") {
  std::vector<Elements> numels;
  for (int i = 0; i < 100; ++i) {
    for (const Elements numel : {Elements{1600} * 6400 - 7, Elements{6400}, Elements{1601}}) {
      numels.push_back(numel);
    }
  }
  const CanonicalIndex canonical(numels);
  const FlatLayout layout(numels, 64);
  const Partition partition(layout.total(), 64, 64);
  Runs runs(64);
  for (Rank rank = 0; rank < 64; ++rank) {
    for (const Fragment& f : fragments(layout, partition, rank)) {
      runs[static_cast<std::size_t>(rank)].push_back(
          {0, f.slice_offset, canonical.start(f.parameter) + f.parameter_offset, f.count});
    }
  }
  const NormPlan plan = plan_norm(runs);
  std::size_t leaves = 0;
  for (const RankNorm& rank : plan.ranks) leaves += rank.leaves.size();
  CHECK(leaves < (300 + 64) * 30);
  CHECK(plan.nodes_per_rank < 60);
}
