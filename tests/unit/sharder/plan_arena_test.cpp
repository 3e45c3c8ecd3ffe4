// Where blocks lie: aligned, apart, and not where streams would collide.
#include <doctest/doctest.h>

#include <ctime>
#include <numeric>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

constexpr Bytes period = Bytes{1} << 27;  // bytes; streams a multiple of it apart collide
constexpr Bytes skew = 128 * 1024;        // bytes

/// Where a rank's step reads from, of each block that the step of flat `index` streams.
std::vector<Bytes> stream_starts(const Plan& plan, int index, Rank rank) {
  const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
  std::vector<Bytes> starts;
  const auto add = [&](Role role, int part, Bytes own) {
    const Block* block = plan.block(role, index, part);
    if (block != nullptr) starts.push_back(block->offset + rank * own);
  };
  add(Role::Master, 0, 0);
  add(Role::Compute, 0, 0);
  add(Role::Whole, 0, flat.partition.slice() * size_of(flat.compute));
  const bool whole = plan.moment == ReduceMoment::Boundary;
  const Bytes own = whole ? flat.partition.slice() * size_of(flat.accumulate) : 0;
  add(Role::Gradient, 0, own);
  for (int part = 0; part < plan.partial_sums; ++part) add(Role::Partial, part, own);
  for (int part = 0; part < plan.request.optimizer_states; ++part) add(Role::State, part, 0);
  return starts;
}

bool collide(Bytes one, Bytes other) {
  const Bytes apart = one > other ? one - other : other - one;
  return apart > period / 2 && (apart + skew - 1) % period < 2 * skew - 1;
}

int collisions(const Plan& plan) {
  int count = 0;
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index)
    for (Rank rank = 0; rank < plan.shard_group; ++rank) {
      const std::vector<Bytes> starts = stream_starts(plan, index, rank);
      for (std::size_t i = 0; i < starts.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) count += collide(starts[i], starts[j]);
    }
  return count;
}

Bytes bytes_of_all(const Plan& plan) {
  Bytes sum = 0;
  for (const Block& block : plan.blocks) sum += block.bytes;
  return sum;
}

}  // namespace

TEST_CASE("blocks are aligned, in order, apart, and inside the arena") {
  for_random_cases(21, [](const PlanCase& made) {
    Bytes end = 0;
    for (const Block& block : made.plan.blocks) {
      CHECK(block.bytes > 0);
      CHECK(block.offset % 128 == 0);
      CHECK(block.offset >= end);
      CHECK(block.offset < end + 128);  // nothing here is big enough to be skewed
      end = block.offset + block.bytes;
      CHECK(made.plan.block(block.role, block.owner, block.index) == &block);
    }
    CHECK(made.plan.arena_bytes == (end + 127) / 128 * 128);
  });
}

TEST_CASE("what lies in a ring slot is apart and fits") {
  for_random_cases(22, [](const PlanCase& made) {
    for (const UnitPlan& unit : made.plan.units) {
      Bytes gathered = 0;
      Bytes gradients = 0;
      for (int index : unit.flats) {
        const Flat& flat = made.plan.flats[static_cast<std::size_t>(index)];
        const Bytes bytes = (flat.partition.padded() * size_of(flat.compute) + 127) / 128 * 128;
        if (flat.whole == ParametersWhole::PerUse) {
          CHECK(flat.gather_offset == gathered);
          gathered += bytes;
        }
        if (flat.requires_grad && !flat.gradient_in_place) {
          CHECK(flat.gradient_offset == gradients);
          gradients += bytes;
        }
      }
      CHECK(gathered <= made.plan.gather_slot_bytes);
      CHECK(gathered == unit.ring_bytes);
      if (!unit.dedicated) CHECK(gradients <= made.plan.gradient_slot_bytes);
    }
  });
}

TEST_CASE("streams of one step are never close to a multiple of 2^27 bytes apart") {
  const Elements slice = period / 4;  // fp32 elements of 2^27 bytes
  for (const int world : {1, 2, 3, 4, 8})
    for (const Elements numel : {slice, slice * world, 2 * slice * world, slice + 32, slice / 2})
      for (const auto& strategy : strategies)
        for (const auto& precision : precisions) {
          INFO(strategy.name << " " << precision.name << " W" << world << " " << numel);
          const Plan plan = make_plan(equal_modules(2, {numel}),
                                      {strategy.traits, precision.traits, {}, world, 3}, {});
          CHECK(collisions(plan) == 0);
        }
}

TEST_CASE("partial sums do not collide either") {
  const Options options{.max_micro_steps = 64,
                        .accumulation = Accumulation::Tree,
                        .reduce_moment = ReduceMoment::Boundary};
  const Model model = equal_modules(1, {period / 2});
  CHECK(collisions(plan_for<strategy::NoShard>(model, 1, options)) == 0);
  CHECK(collisions(plan_for<strategy::FullShard, precision::Bf16Mixed>(model, 8, options)) == 0);
}

TEST_CASE("the skew is counted in the arena") {
  const Plan plan = plan_for<strategy::NoShard>(equal_modules(1, {period / 4}), 1);
  REQUIRE(plan.bytes(Role::Whole) == period);
  REQUIRE(plan.bytes(Role::State) == 2 * period);
  CHECK(plan.block(Role::Whole, 0)->offset == 0);
  CHECK(plan.block(Role::Gradient, 0)->offset == period + skew);
  CHECK(plan.block(Role::State, 0, 0)->offset == 2 * (period + skew));
  CHECK(plan.block(Role::State, 0, 1)->offset == 3 * (period + skew));
  const Bytes gaps = plan.arena_bytes - bytes_of_all(plan);
  CHECK(gaps >= 3 * skew);
  CHECK(gaps < 3 * skew + 4 * 128);
}

TEST_CASE("three hundred parameters of 1e9 elements are planned at once") {
  Model model;
  for (int layer = 0; layer < 100; ++layer) {
    Module module = model.module("h." + std::to_string(layer));
    module.add("attention", {1789, 1861});
    module.add("mlp", {7001, 953});
    module.add("bias", {7001}, {.group = 1});
  }
  Options options;
  options.groups = {{}, {}};
  const std::clock_t before = std::clock();
  const Plan plan = plan_for<strategy::FullShard, precision::Bf16Mixed>(model, 64, options);
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  MESSAGE("planned in " << seconds << " s of CPU time");
  CHECK(seconds < 2);
  Elements owned = 0;
  for (const Flat& flat : plan.flats)
    for (Elements e = 0; e < flat.layout.parameters(); ++e)
      owned += flat.layout.numel(static_cast<int>(e));
  CHECK(owned == 100 * (Elements{1789} * 1861 + Elements{7001} * 953 + 7001));
  CHECK(owned > 1000000000);
}

TEST_CASE("sizes beyond 2^31 elements and 2^32 bytes stay exact") {
  const Elements numel = (Elements{1} << 33) + 64;
  Model model = equal_modules(1, {numel});
  const Plan plan = plan_for<strategy::FullShard>(model, 2);
  CHECK(plan.bytes(Role::Master) == numel / 2 * 4);
  CHECK(plan.bytes(Role::State) == numel * 4);
  CHECK(plan.gather_slot_bytes == numel * 4);
  REQUIRE(plan.flats.at(0).runs.size() == 2);
  CHECK(plan.flats[0].runs[1] == std::vector<StepRun>{{0, numel / 2, numel / 2, 0}});
}

TEST_CASE("a model whose bytes do not fit into 63 bits is refused") {
  const Model model = equal_modules(1, {Elements{1} << 61});
  for (const auto& strategy : strategies)
    CHECK(says(refusal(model, {strategy.traits, {}, {}, 2}, {}), {"2^63 - 1"}));
}
