// The numbers of the drawings in docs/concepts.rst, and what stands there in code.
#include <flatshard/layout/flat_layout.hpp>
#include <flatshard/layout/unit.hpp>

#include <array>

#include "expect.hpp"

namespace fsh = flatshard;

namespace {

void slices() {
  // [slices]
  const std::array<fsh::Elements, 3> numels{5, 9, 3};
  const fsh::FlatLayout layout(numels, /*alignment=*/4);
  const fsh::Partition partition(layout.total(), /*world=*/4, /*alignment=*/4);
  const std::vector<fsh::Fragment> of_rank_2 = fsh::fragments(layout, partition, /*rank=*/2);
  // [slices end]
  expect(layout.start(1) == 8 && layout.start(2) == 20 && layout.total() == 23, "starts");
  expect(partition.slice() == 8 && partition.padded() == 32, "slices of 8");
  expect(partition.padding(2) == 1 && partition.padding(3) == 8, "padding");
  expect(of_rank_2.size() == 2, "two fragments");
  expect(of_rank_2[0] == fsh::Fragment{1, 8, 0, 1}, "the last element of parameter 1");
  expect(of_rank_2[1] == fsh::Fragment{2, 0, 4, 3}, "all of parameter 2");
  expect(fsh::fragments(layout, partition, 3).empty(), "rank 3 holds padding only");
}

void units() {
  // [units]
  fsh::Model model;
  auto embedding = model.module("embedding");
  auto first = model.module("h.0");
  auto second = model.module("h.1");
  auto table = embedding.add("weight", {50257, 768});
  auto fc = first.add("fc.weight", {3072, 768});
  second.add("fc.weight", {3072, 768});
  second.add("fc.bias", {3072});

  const auto by_block = fsh::assign_units(model, fsh::wrap::each_module());   // 3 units
  const auto merged = fsh::assign_units(model, fsh::wrap::up_to(5'000'000));  // 2 units
  const auto one = fsh::assign_units(model, fsh::wrap::all_in_one());         // 1 unit
  const auto named = fsh::assign_units(model, fsh::wrap::by_prefix({"h"}));   // 2 units
  // [units end]
  expect(by_block.size() == 3 && merged.size() == 2 && one.size() == 1 && named.size() == 2,
         "units");
  expect(merged[1].name == "h.0..h.1", "the blocks are merged");
  expect(table.index == 0 && fc.index == 1, "model order");
}

}  // namespace

int main() {
  slices();
  units();
}
