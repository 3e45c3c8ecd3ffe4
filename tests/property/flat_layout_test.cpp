#include <flatshard/layout/canonical.hpp>
#include <flatshard/layout/flat_layout.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "cases.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

constexpr int cases = 200;

struct Case {
  std::vector<Elements> numels;
  FlatLayout layout;
};

Case random_case(Random& random) {
  auto numels = random_numels(random);
  const auto alignment = random_alignment(random);
  FlatLayout layout(numels, alignment);
  return {numels, layout};
}

/// One number per element of every parameter, none twice and none 0.
std::vector<std::vector<int>> labelled(const std::vector<Elements>& numels) {
  std::vector<std::vector<int>> parameters;
  int next = 1;
  for (const Elements numel : numels) {
    auto& parameter = parameters.emplace_back(static_cast<std::size_t>(numel));
    std::iota(parameter.begin(), parameter.end(), next);
    next += static_cast<int>(numel);
  }
  return parameters;
}

std::size_t at(Elements index) { return static_cast<std::size_t>(index); }

/// Copies each fragment between a slice and the parameters it belongs to.
template <class Copy>
void for_each_element(const FlatLayout& layout, const Partition& partition, Rank rank, Copy copy) {
  for (const Fragment& fragment : fragments(layout, partition, rank)) {
    for (Elements i = 0; i < fragment.count; ++i) {
      copy(at(fragment.parameter), at(fragment.parameter_offset + i),
           at(fragment.slice_offset + i));
    }
  }
}

}  // namespace

TEST_CASE("parameters follow each other at aligned starts") {
  auto random = generator(1);
  for (int repeat = 0; repeat < cases; ++repeat) {
    const auto [numels, layout] = random_case(random);
    REQUIRE(layout.parameters() == static_cast<int>(numels.size()));
    Elements end = 0;
    for (int i = 0; i < layout.parameters(); ++i) {
      CHECK(layout.start(i) == round_up(end, layout.alignment()));
      end = layout.start(i) + layout.numel(i);
      CHECK(layout.numel(i) == numels[at(i)]);
    }
    CHECK(layout.total() == end);
  }
}

TEST_CASE("slices are equal, aligned, disjoint and cover") {
  auto random = generator(2);
  for (int repeat = 0; repeat < cases; ++repeat) {
    const Elements total = between(random, 0, 500);
    const Elements alignment = random_alignment(random);
    for (int world = 1; world <= 9; ++world) {
      const Partition partition(total, world, alignment);
      CHECK(partition.slice() == round_up(ceil_div(total, world), alignment));
      CHECK(partition.padded() == world * partition.slice());
      Elements end = 0;
      Elements padding = 0;
      for (Rank rank = 0; rank < world; ++rank) {
        CHECK(partition.range(rank).begin == end);
        end = partition.range(rank).end;
        padding += partition.padding(rank);
        const Elements real = partition.slice() - partition.padding(rank);
        CHECK(real ==
              std::clamp<Elements>(total - partition.range(rank).begin, 0, partition.slice()));
      }
      CHECK(end == partition.padded());
      CHECK(padding == partition.padded() - total);
    }
  }
}

TEST_CASE("an element's owner holds it") {
  auto random = generator(3);
  for (int repeat = 0; repeat < cases; ++repeat) {
    const int world = static_cast<int>(between(random, 1, 9));
    const Partition partition(between(random, 1, 500), world, random_alignment(random));
    const Elements element = between(random, 0, partition.padded() - 1);
    const Range range = partition.range(partition.owner(element));
    CHECK(range.begin <= element);
    CHECK(element < range.end);
    CHECK(partition.owner(partition.padded()) == world - 1);
  }
}

TEST_CASE("unflatten(gather(shard(x))) == x, and padding stays zero") {
  auto random = generator(4);
  for (int repeat = 0; repeat < cases; ++repeat) {
    const auto [numels, layout] = random_case(random);
    const auto parameters = labelled(numels);
    for (int world = 1; world <= 9; ++world) {
      const Partition partition(layout.total(), world, layout.alignment());
      auto restored = parameters;
      for (auto& parameter : restored) parameter.assign(parameter.size(), -1);
      std::vector<int> gathered;
      Elements owned = 0;
      for (Rank rank = 0; rank < world; ++rank) {
        std::vector<int> slice(at(partition.slice()), 0);
        for_each_element(layout, partition, rank, [&](auto p, auto from, auto to) {
          slice.at(to) = parameters.at(p).at(from);
          restored[p][from] = slice[to];
          ++owned;
        });
        gathered.insert(gathered.end(), slice.begin(), slice.end());
      }
      CHECK(restored == parameters);
      CHECK(owned == std::accumulate(numels.begin(), numels.end(), Elements{0}));
      for (int i = 0; i < layout.parameters(); ++i) {
        const std::vector<int> flat(gathered.begin() + layout.start(i),
                                    gathered.begin() + layout.start(i) + layout.numel(i));
        CHECK(flat == parameters[at(i)]);
      }
    }
  }
}

TEST_CASE("a parameter without elements has one owner") {
  auto random = generator(5);
  for (int repeat = 0; repeat < cases; ++repeat) {
    const auto [numels, layout] = random_case(random);
    for (int world = 1; world <= 9; ++world) {
      const Partition partition(layout.total(), world, layout.alignment());
      std::vector<int> owners(numels.size(), 0);
      for (Rank rank = 0; rank < world; ++rank) {
        for (const Fragment& fragment : fragments(layout, partition, rank)) {
          owners.at(at(fragment.parameter)) += fragment.count == 0;
        }
      }
      for (std::size_t i = 0; i < numels.size(); ++i) CHECK(owners[i] == (numels[i] == 0));
    }
  }
}

TEST_CASE("the canonical index knows sizes and order alone") {
  auto random = generator(6);
  for (int repeat = 0; repeat < cases; ++repeat) {
    const auto numels = random_numels(random);
    const CanonicalIndex index(numels);
    Elements end = 0;
    for (std::size_t i = 0; i < numels.size(); ++i) {
      CHECK(index.start(static_cast<int>(i)) == round_up(end, canonical_alignment));
      end = index.start(static_cast<int>(i)) + numels[i];
    }
    CHECK(index.size() == round_up(end, canonical_alignment));
  }
}
