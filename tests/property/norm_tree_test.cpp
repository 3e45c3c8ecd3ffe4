#include <flatshard/layout/norm_tree.hpp>

#include <doctest/doctest.h>

#include <algorithm>

#include "perfect_tree.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

constexpr int levels = 13;  // 2^13 positions hold any random_values

Cut random_cut(Random& random, const Values& values) {
  const auto world = between(random, 1, 9);
  const auto buffers = between(random, 1, 3);
  Cut cut(at(world), at(buffers));
  for (auto next = values.begin(); next != values.end();) {
    const auto rank = at(between(random, 0, world - 1));
    const auto buffer = at(between(random, 0, buffers - 1));
    auto& content = cut.contents[rank][buffer];
    content.resize(content.size() + at(between(random, 0, 5)), poison);
    OwnedRun run{static_cast<int>(buffer), static_cast<Elements>(content.size()), next->first, 0};
    const Elements wanted = between(random, 1, 90);
    while (next != values.end() && run.count < wanted && next->first == run.canonical + run.count) {
      content.push_back(next->second);
      ++run.count;
      ++next;
    }
    cut.runs[rank].push_back(run);
  }
  for (auto& runs : cut.runs) std::shuffle(runs.begin(), runs.end(), random);
  return cut;
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

using Owners = std::map<Elements, std::size_t>;  // canonical index -> rank

Owners owners(const Cut& cut) {
  Owners owners;
  for (std::size_t rank = 0; rank < cut.runs.size(); ++rank) {
    for (const OwnedRun& run : cut.runs[rank]) {
      for (Elements i = 0; i < run.count; ++i) owners[run.canonical + i] = rank;
    }
  }
  return owners;
}

/// Counts the maximal nodes that each rank owns: all elements below are its own, above are not.
void count_maximal(const Owners& owners, Elements begin, int level, std::vector<int>& counts) {
  const auto first = owners.lower_bound(begin);
  const auto last = owners.lower_bound(begin + (Elements{1} << level));
  if (first == last) return;
  const std::size_t rank = first->second;
  if (std::all_of(first, last, [&](const auto& owned) { return owned.second == rank; })) {
    ++counts[rank];
    return;
  }
  count_maximal(owners, begin, level - 1, counts);
  count_maximal(owners, begin + (Elements{1} << (level - 1)), level - 1, counts);
}

}  // namespace

TEST_CASE("the norm's bits do not depend on how elements are cut over ranks and buffers") {
  auto random = generator(10);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Values values = random_values(random);
    const double expected = reference(values, 0, levels);
    for (int again = 0; again < 5; ++again) {
      const Cut cut = random_cut(random, values);
      const NormPlan plan = plan_norm(cut.runs);
      CHECK(evaluate(plan, cut) == expected);
    }
  }
}

TEST_CASE("each rank exports its maximal nodes and no others") {
  auto random = generator(11);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Cut cut = random_cut(random, random_values(random));
    const NormPlan plan = plan_norm(cut.runs);
    std::vector<int> expected(cut.runs.size(), 0);
    count_maximal(owners(cut), 0, levels, expected);
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
      CHECK(static_cast<int>(plan.ranks[rank].exported.size()) == expected[rank]);
    }
    CHECK(plan.nodes_per_rank == *std::max_element(expected.begin(), expected.end()));
  }
}

TEST_CASE("leaves are sorted by buffer") {
  auto random = generator(12);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const NormPlan plan = plan_norm(random_cut(random, random_values(random)).runs);
    for (const RankNorm& rank : plan.ranks) {
      CHECK(
          std::is_sorted(rank.leaves.begin(), rank.leaves.end(),
                         [](const NormLeaf& a, const NormLeaf& b) { return a.buffer < b.buffer; }));
    }
  }
}

TEST_CASE("without elements the norm is zero") {
  const std::vector<std::vector<OwnedRun>> nobody(3);
  CHECK(plan_norm(nobody).root == -1);
}
