#include <flatshard/layout/norm_leaves.hpp>

#include <doctest/doctest.h>

using namespace flatshard;
using namespace flatshard::detail;

namespace {

using Runs = std::vector<std::vector<OwnedRun>>;  // of each rank

std::vector<Elements> begins(const Runs& runs) {
  std::vector<Elements> begins;
  for (const PlacedLeaf& leaf : cut_runs(runs)) begins.push_back(leaf.begin);
  return begins;
}

}  // namespace

TEST_CASE("log2, rounded down") {
  for (int l = 0; l < 63; ++l) {
    CHECK(log2_floor(Elements{1} << l) == l);
    CHECK(log2_floor((Elements{1} << l) + ((Elements{1} << l) - 1)) == l);
  }
}

TEST_CASE("a run is cut at the multiples of the largest powers of two") {
  CHECK(begins({{{0, 0, 5, 91}}}) == std::vector<Elements>{5, 6, 8, 16, 32, 64});
  CHECK(begins({{{0, 0, 0, 96}}}) == std::vector<Elements>{0, 64});
  CHECK(begins({{{0, 0, 0, 65}}}) == std::vector<Elements>{0, 64});
  CHECK(begins({{}}).empty());
}

TEST_CASE("leaves of all ranks come in canonical order and say where their elements are") {
  const std::vector<PlacedLeaf> leaves = cut_runs(Runs{{{2, 40, 32, 9}}, {{0, 7, 0, 32}}});
  REQUIRE(leaves.size() == 2);
  CHECK(leaves[0].rank == 1);
  CHECK(leaves[0].sum == NormLeaf{0, 7, 32, 5});
  CHECK(leaves[1].rank == 0);
  CHECK(leaves[1].sum == NormLeaf{2, 40, 9, 5});
}
