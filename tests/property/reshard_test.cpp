#include <flatshard/layout/flat_layout.hpp>

#include <doctest/doctest.h>

#include <numeric>

#include "cases.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

using Slices = std::vector<std::vector<int>>;      // of each rank
using Parameters = std::vector<std::vector<int>>;  // of each parameter

constexpr int padding = -7;

std::size_t at(Elements index) { return static_cast<std::size_t>(index); }

struct Sharding {
  FlatLayout layout;
  Partition partition;
};

Sharding random_sharding(Random& random, const std::vector<Elements>& numels) {
  const Elements alignment = random_alignment(random);
  FlatLayout layout(numels, alignment);
  Partition partition(layout.total(), static_cast<int>(between(random, 1, 9)), alignment);
  return {layout, partition};
}

/// Parameters numbered through, as `sharding` stores them.
Slices numbered(const Sharding& sharding) {
  Slices slices;
  for (Rank rank = 0; rank < sharding.partition.world(); ++rank) {
    slices.emplace_back(at(sharding.partition.slice()), padding);
  }
  int next = 0;
  for (int p = 0; p < sharding.layout.parameters(); ++p) {
    for (Elements e = sharding.layout.range(p).begin; e < sharding.layout.range(p).end; ++e) {
      const Rank owner = sharding.partition.owner(e);
      slices[at(owner)][at(e - sharding.partition.range(owner).begin)] = next++;
    }
  }
  return slices;
}

/// Copies what two fragments have in common.
void copy_common(const Fragment& from, const std::vector<int>& source, const Fragment& to,
                 std::vector<int>& destination) {
  if (from.parameter != to.parameter) return;
  const Elements begin = std::max(from.parameter_offset, to.parameter_offset);
  const Elements end = std::min(from.parameter_offset + from.count, to.parameter_offset + to.count);
  for (Elements i = begin; i < end; ++i) {
    destination[at(to.slice_offset + i - to.parameter_offset)] =
        source[at(from.slice_offset + i - from.parameter_offset)];
  }
}

/// Every rank of `to` takes what it needs from every rank of `from`, fragment by fragment.
Slices resharded(const Sharding& from, const Slices& source, const Sharding& to) {
  Slices result;
  for (Rank rank = 0; rank < to.partition.world(); ++rank) {
    auto& slice = result.emplace_back(at(to.partition.slice()), padding);
    for (const Fragment& wanted : fragments(to.layout, to.partition, rank)) {
      for (Rank other = 0; other < from.partition.world(); ++other) {
        for (const Fragment& held : fragments(from.layout, from.partition, other)) {
          copy_common(held, source[at(other)], wanted, slice);
        }
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("resharding through fragments keeps every element, at any two world sizes") {
  auto random = generator(20);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto numels = random_numels(random);
    const Sharding from = random_sharding(random, numels);
    const Sharding to = random_sharding(random, numels);
    CHECK(resharded(from, numbered(from), to) == numbered(to));
  }
}
