#include <flatshard/core/error.hpp>
#include <flatshard/layout/canonical.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace flatshard;

TEST_CASE("starts are rounded up to 32") {
  const std::vector<Elements> numels{3, 32, 33, 0, 1};
  const CanonicalIndex index(numels);
  const std::vector<Elements> starts{0, 32, 64, 128, 128};
  for (int i = 0; i < 5; ++i) CHECK(index.start(i) == starts[static_cast<std::size_t>(i)]);
  CHECK(index.size() == 160);
}

TEST_CASE("no parameter, or none with elements: size 0") {
  CHECK(CanonicalIndex(std::vector<Elements>{}).size() == 0);
  CHECK(CanonicalIndex(std::vector<Elements>{0, 0}).size() == 0);
}

TEST_CASE("starts above 2^31 and near 2^40 are exact") {
  const std::vector<Elements> numels{2359332864, (Elements{1} << 40) - 5, 7};
  const CanonicalIndex index(numels);
  CHECK(index.start(1) == 2359332864);
  CHECK(index.start(2) == 2359332864 + (Elements{1} << 40));
  CHECK(index.size() == 2359332864 + (Elements{1} << 40) + 32);
}

TEST_CASE("a canonical size above 2^63 - 1 is refused") {
  const std::vector<Elements> numels{std::numeric_limits<Elements>::max() - 40, 41};
  CHECK_THROWS_AS(CanonicalIndex{numels}, UsageError);
  const std::vector<Elements> last_cannot_be_rounded{std::numeric_limits<Elements>::max()};
  CHECK_THROWS_AS(CanonicalIndex{last_cannot_be_rounded}, UsageError);
}

TEST_CASE("equal sizes give equal indices") {
  CHECK(CanonicalIndex(std::vector<Elements>{1, 2}) == CanonicalIndex(std::vector<Elements>{1, 2}));
  CHECK(CanonicalIndex(std::vector<Elements>{1, 2}) !=
        CanonicalIndex(std::vector<Elements>{1, 33}));
}
