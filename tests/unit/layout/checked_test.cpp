#include <flatshard/layout/checked.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace flatshard;
using namespace flatshard::detail;

namespace {

constexpr Elements most = std::numeric_limits<Elements>::max();

}  // namespace

TEST_CASE("sums, products and roundings that fit are exact") {
  CHECK(checked_add(most - 1, 1, "x") == most);
  CHECK(checked_multiply(Elements{1} << 31, (Elements{1} << 31) + 1, "x") ==
        (Elements{1} << 62) + (Elements{1} << 31));
  CHECK(checked_round_up(most - 7, 8, "x") == most - 7);
  CHECK(checked_round_up(0, 8, "x") == 0);
}

TEST_CASE("the others throw, naming what and both numbers") {
  CHECK_THROWS_WITH_AS(checked_add(most, 1, "the sum"), doctest::Contains("the sum: 92233720"),
                       UsageError);
  CHECK_THROWS_WITH_AS(checked_multiply(most, 3, "P"), doctest::Contains("* 3 is above"),
                       UsageError);
  CHECK_THROWS_AS(checked_round_up(most - 6, 8, "x"), UsageError);
}

TEST_CASE("aligned starts end with the end of the last") {
  const std::vector<Elements> numels{3, 5, 1};
  CHECK(aligned_starts(numels, 8, "x") == std::vector<Elements>{0, 8, 16, 17});
  CHECK(aligned_starts(numels, 1, "x") == std::vector<Elements>{0, 3, 8, 9});
  CHECK(aligned_starts({}, 8, "x") == std::vector<Elements>{0});
  CHECK_THROWS_WITH_AS(aligned_starts(numels, 0, "x"), doctest::Contains("alignment is 0"),
                       UsageError);
  CHECK_THROWS_WITH_AS(aligned_starts(std::vector<Elements>{3, -1}, 8, "x"),
                       doctest::Contains("parameter 1 has -1 elements"), UsageError);
}
