#include <flatshard/core/error.hpp>
#include <flatshard/layout/flat_layout.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace flatshard;

namespace {

using Numels = std::vector<Elements>;
using Fragments = std::vector<Fragment>;

Numels real_elements(Elements total, int world) {
  const Partition partition(total, world, 1);
  Numels real;
  for (Rank rank = 0; rank < world; ++rank) {
    real.push_back(partition.slice() - partition.padding(rank));
  }
  return real;
}

std::vector<Fragments> all_fragments(const FlatLayout& layout, const Partition& partition) {
  std::vector<Fragments> all;
  for (Rank rank = 0; rank < partition.world(); ++rank) {
    all.push_back(fragments(layout, partition, rank));
  }
  return all;
}

}  // namespace

TEST_CASE("sizes 3, 5, 1 at alignment 8 in slices of 5") {
  const FlatLayout layout(Numels{3, 5, 1}, 8);
  CHECK(layout.start(1) == 8);
  CHECK(layout.range(2) == Range{16, 17});
  CHECK(layout.total() == 17);
  const Partition partition(layout.total(), 4, 1);
  CHECK(partition.slice() == 5);
  CHECK(partition.padded() == 20);
  CHECK(all_fragments(layout, partition) ==
        std::vector<Fragments>{{{0, 0, 0, 3}}, {{1, 0, 3, 2}}, {{1, 2, 0, 3}}, {{2, 0, 1, 1}}});
}

TEST_CASE("sizes 3, 5, 1 with starts and slices at alignment 8") {
  const FlatLayout layout(Numels{3, 5, 1}, 8);
  const Partition partition(layout.total(), 4, 8);
  CHECK(partition.slice() == 8);
  CHECK(all_fragments(layout, partition) ==
        std::vector<Fragments>{{{0, 0, 0, 3}}, {{1, 0, 0, 5}}, {{2, 0, 0, 1}}, {}});
}

TEST_CASE("sizes 3, 5, 1 at alignment 1") {
  const FlatLayout layout(Numels{3, 5, 1}, 1);
  const Partition partition(layout.total(), 4, 1);
  CHECK(layout.total() == 9);
  CHECK(partition.slice() == 3);
  CHECK(partition.padded() == 12);
  CHECK(all_fragments(layout, partition) ==
        std::vector<Fragments>{{{0, 0, 0, 3}}, {{1, 0, 0, 3}}, {{1, 3, 0, 2}, {2, 0, 2, 1}}, {}});
  CHECK(partition.padding(3) == 3);
}

TEST_CASE("equal slices: how many real elements each rank holds") {
  CHECK(real_elements(17, 4) == Numels{5, 5, 5, 2});
  CHECK(real_elements(9, 4) == Numels{3, 3, 3, 0});
  CHECK(real_elements(5, 4) == Numels{2, 2, 1, 0});
  CHECK(real_elements(1, 4) == Numels{1, 0, 0, 0});
  CHECK(real_elements(10, 3) == Numels{4, 4, 2});
  CHECK(real_elements(4096, 3) == Numels{1366, 1366, 1364});
  CHECK(real_elements(0, 3) == Numels{0, 0, 0});
  CHECK(real_elements(3, 4) == Numels{1, 1, 1, 0});
}

TEST_CASE("padding may reach over several ranks") {
  const Partition partition(266240, 768, 2);
  CHECK(partition.slice() == 348);
  CHECK(partition.padding(764) == 0);
  CHECK(partition.padding(765) == 328);
  CHECK(partition.padding(766) == 348);
  CHECK(partition.padding(767) == 348);
}

TEST_CASE("a parameter without elements has one owner, wherever it stands") {
  const auto owners = [](Numels numels, int empty) {
    const FlatLayout layout(numels, 1);
    const Partition partition(layout.total(), 2, 1);
    std::vector<std::pair<Rank, Fragment>> found;
    for (Rank rank = 0; rank < 2; ++rank) {
      for (const Fragment& fragment : fragments(layout, partition, rank)) {
        if (fragment.parameter == empty) found.emplace_back(rank, fragment);
      }
    }
    REQUIRE(found.size() == 1);
    return found.front();
  };
  CHECK(owners({4, 0, 4}, 1) == std::pair{Rank{1}, Fragment{1, 0, 0, 0}});
  CHECK(owners({3, 0, 5}, 1) == std::pair{Rank{0}, Fragment{1, 0, 3, 0}});
  CHECK(owners({0, 8}, 0) == std::pair{Rank{0}, Fragment{0, 0, 0, 0}});
  CHECK(owners({8, 0}, 1) == std::pair{Rank{1}, Fragment{1, 0, 4, 0}});
  CHECK(owners({0}, 0) == std::pair{Rank{1}, Fragment{0, 0, 0, 0}});
  CHECK(owners({8, 0, 24}, 1) == std::pair{Rank{0}, Fragment{1, 0, 8, 0}});
}

TEST_CASE("nothing at all") {
  const FlatLayout layout(Numels{}, 8);
  CHECK(layout.total() == 0);
  const Partition partition(0, 4, 8);
  CHECK(partition.padded() == 0);
  CHECK(partition.owner(0) == 3);
  CHECK(fragments(layout, partition, 2).empty());
}

TEST_CASE("sizes above 2^31 and near 2^40") {
  const Elements large = 2359332864;
  const FlatLayout layout(Numels{large, (Elements{1} << 40) - 1, 1}, 64);
  CHECK(layout.total() == large + (Elements{1} << 40) + 1);
  const Partition partition(layout.total(), 3, 64);
  CHECK(partition.slice() == 367290320256);  // (2^40 + 2359332865) / 3, rounded up to 64
  CHECK(partition.range(2).begin == 734580640512);
  const Fragments last = fragments(layout, partition, 2);
  CHECK(last ==
        Fragments{{1, 734580640512 - large, 0, partition.slice() - partition.padding(2) - 2},
                  {2, 0, layout.start(2) - 734580640512, 1}});
}

TEST_CASE("impossible layouts and partitions are refused with the numbers") {
  const Elements most = std::numeric_limits<Elements>::max();
  CHECK_THROWS_WITH_AS(FlatLayout(Numels{1}, 0), doctest::Contains("alignment is 0"), UsageError);
  CHECK_THROWS_WITH_AS(FlatLayout(Numels{-2}, 1), doctest::Contains("-2"), UsageError);
  CHECK_THROWS_AS(FlatLayout(Numels{most, 1}, 1), UsageError);
  CHECK_THROWS_WITH_AS(Partition(1, 0, 1), doctest::Contains("world is 0"), UsageError);
  CHECK_THROWS_AS(Partition(-1, 1, 1), UsageError);
  CHECK_THROWS_WITH_AS(Partition(1, 1, 0), doctest::Contains("alignment is 0"), UsageError);
  CHECK_THROWS_AS(Partition(most, 2, 1), UsageError);
}

TEST_CASE("questions about elements and ranks that do not exist are refused") {
  const Partition partition(8, 2, 4);
  CHECK_THROWS_AS(partition.owner(-1), UsageError);
  CHECK_THROWS_AS(partition.owner(9), UsageError);
  CHECK_THROWS_WITH_AS(fragments(FlatLayout(Numels{9}, 1), partition, 0),
                       doctest::Contains("9 elements does not fit into 8"), UsageError);
  CHECK_THROWS_WITH_AS(fragments(FlatLayout(Numels{8}, 1), partition, 2),
                       doctest::Contains("no rank 2 of 2"), UsageError);
}
