// Sizes that no test can hold in memory: pure arithmetic on intervals.
#include <flatshard/layout/canonical.hpp>
#include <flatshard/layout/flat_layout.hpp>
#include <flatshard/layout/norm_tree.hpp>

#include <doctest/doctest.h>

#include <numeric>

#include "cases.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

std::size_t at(Elements index) { return static_cast<std::size_t>(index); }

/// Around 0, 2^31, 2^32 and 2^40, and anything between.
std::vector<Elements> large_numels(Random& random) {
  std::vector<Elements> numels(at(between(random, 1, 6)));
  for (Elements& numel : numels) {
    const Elements anchors[] = {2, Elements{1} << 31, Elements{1} << 32, Elements{1} << 40,
                                between(random, 2, Elements{1} << 40)};
    numel = anchors[between(random, 0, 4)] + between(random, -2, 2);
  }
  return numels;
}

struct Case {
  std::vector<Elements> numels = {};
  FlatLayout layout;
  Partition partition;
};

Case large_case(Random& random) {
  const auto numels = large_numels(random);
  const Elements alignment = random_alignment(random);
  const FlatLayout layout(numels, alignment);
  const int world = static_cast<int>(between(random, 1, 9));
  return {numels, layout, Partition(layout.total(), world, alignment)};
}

}  // namespace

TEST_CASE("fragments of very large parameters follow each other without gap or overlap") {
  auto random = generator(30);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto [numels, layout, partition] = large_case(random);
    std::vector<Elements> covered(numels.size(), 0);
    for (Rank rank = 0; rank < partition.world(); ++rank) {
      for (const Fragment& f : fragments(layout, partition, rank)) {
        CHECK(f.parameter_offset == covered[at(f.parameter)]);
        CHECK(layout.start(f.parameter) + f.parameter_offset ==
              partition.range(rank).begin + f.slice_offset);
        CHECK(f.slice_offset + f.count <= partition.slice() - partition.padding(rank));
        covered[at(f.parameter)] += f.count;
      }
    }
    CHECK(covered == numels);
  }
}

TEST_CASE("the norm's leaves of very large parameters cover each element once") {
  auto random = generator(31);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto [numels, layout, partition] = large_case(random);
    const CanonicalIndex canonical(numels);
    std::vector<std::vector<OwnedRun>> runs(at(partition.world()));
    for (Rank rank = 0; rank < partition.world(); ++rank) {
      for (const Fragment& f : fragments(layout, partition, rank)) {
        runs[at(rank)].push_back(
            {0, f.slice_offset, canonical.start(f.parameter) + f.parameter_offset, f.count});
      }
    }
    const NormPlan plan = plan_norm(runs);
    Elements covered = 0;
    std::size_t leaves = 0;
    std::size_t adds = plan.adds.size();
    for (const RankNorm& rank : plan.ranks) {
      for (const NormLeaf& leaf : rank.leaves) {
        CHECK(leaf.count <= Elements{1} << leaf.level);
        CHECK(2 * leaf.count + 62 > Elements{1} << leaf.level);
        covered += leaf.count;
      }
      leaves += rank.leaves.size();
      adds += rank.adds.size();
    }
    CHECK(covered == std::accumulate(numels.begin(), numels.end(), Elements{0}));
    CHECK(adds + 1 == leaves + (leaves == 0));
  }
}
