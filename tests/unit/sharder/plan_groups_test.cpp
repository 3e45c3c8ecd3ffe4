#include <doctest/doctest.h>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

/// The rule in the words of Options::shard_group, by trial of every size.
int default_group(int world) {
  int best = 1;
  for (int size = 1; size <= std::max(1, world / 2); size *= 2)
    if (world % size == 0) best = size;
  return best;
}

int micro_steps_log2(int micro_steps) {
  int log = 0;
  for (int power = 2; power <= micro_steps; power *= 2) ++log;
  return log;
}

}  // namespace

TEST_CASE("the default shard group is the largest power of two up to W / 2 that divides W") {
  const Model model = equal_modules(1, {3});
  for (int world = 1; world <= 64; ++world) {
    const Plan hybrid = plan_for<strategy::HybridShard>(model, world);
    CHECK(hybrid.shard_group == default_group(world));
    CHECK(hybrid.replicas * hybrid.shard_group == world);
    const Plan secondary = plan_for<strategy::FullShardSecondary>(model, world);
    CHECK(secondary.secondary_group == default_group(world));
  }
  CHECK(default_group(2) == 1);
  CHECK(default_group(8) == 4);
  CHECK(default_group(12) == 4);
  CHECK(default_group(15) == 1);
}

TEST_CASE("the scope of a strategy says over whom it shards") {
  const Model model = equal_modules(1, {3});
  const Options options{.shard_group = 3};
  CHECK(plan_for<strategy::NoShard>(model, 6, options).shard_group == 1);
  CHECK(plan_for<strategy::NoShard>(model, 6, options).replicas == 6);
  CHECK(plan_for<strategy::ShardOptimizer>(model, 6, options).shard_group == 6);
  CHECK(plan_for<strategy::FullShard>(model, 6, options).shard_group == 6);
  CHECK(plan_for<strategy::FullShard>(model, 6, options).secondary_group == 1);
  CHECK(plan_for<strategy::HybridShardGradOp>(model, 6, options).shard_group == 3);
  CHECK(plan_for<strategy::HybridShardGradOp>(model, 6, options).replicas == 2);
  CHECK(plan_for<strategy::FullShardSecondary>(model, 6, options).shard_group == 6);
  CHECK(plan_for<strategy::FullShardSecondary>(model, 6, options).secondary_group == 3);
}

TEST_CASE("gradients are reduced every micro-step where they are sharded, else at the boundary") {
  const Model model = equal_modules(1, {3});
  for (const auto& strategy : strategies) {
    const Plan plan = make_plan(model, {strategy.traits, {}, {}, 4}, {});
    const bool whole =
        std::string(strategy.name) == "NoShard" || std::string(strategy.name) == "ShardOptimizer";
    CHECK_MESSAGE(plan.moment == (whole ? ReduceMoment::Boundary : ReduceMoment::Micro),
                  strategy.name);
    for (const ReduceMoment asked : {ReduceMoment::Micro, ReduceMoment::Boundary})
      CHECK(make_plan(model, {strategy.traits, {}, {}, 4}, {.reduce_moment = asked}).moment ==
            asked);
  }
}

TEST_CASE("tree accumulation keeps floor(log2 K) partial sums") {
  const Model model = equal_modules(1, {3});
  for (int count = 1; count <= 70; ++count) {
    const Options tree{.max_micro_steps = count, .accumulation = Accumulation::Tree};
    const Options running{.max_micro_steps = count};
    CHECK(plan_for<strategy::FullShard>(model, 2, tree).partial_sums == micro_steps_log2(count));
    CHECK(plan_for<strategy::FullShard>(model, 2, running).partial_sums == 0);
  }
}

TEST_CASE("what cannot be done is refused with the numbers involved") {
  Model model = equal_modules(1, {3});
  model.module("h.0").add("grouped", {2}, {.group = 2});
  Options two_groups;
  two_groups.groups = {{}, {}};
  const auto full = request_for<strategy::FullShard>(4);
  const auto hybrid = request_for<strategy::HybridShard>(6);
  Options options;
  options.groups = {{}, {}, {}};
  CHECK(refusal(model, full, options).empty());
  CHECK(says(refusal(model, full, two_groups), {"h.0.grouped", "group 2", "has 2"}));
  const auto refused = [&](const PlanRequest& request, auto change) {
    Options changed = options;
    change(changed);
    return refusal(model, request, changed);
  };
  CHECK(says(refused(hybrid, [](Options& o) { o.shard_group = 4; }),
             {"shard_group 4", "world size 6"}));
  CHECK(says(refused(hybrid, [](Options& o) { o.shard_group = -1; }), {"shard_group -1"}));
  CHECK(says(refused(full, [](Options& o) { o.reduce_moment = ReduceMoment::ReplicaBoundary; }),
             {"ReplicaBoundary", "HybridShard"}));
  CHECK(says(refused(full, [](Options& o) { o.max_micro_steps = 0; }), {"max_micro_steps is 0"}));
  CHECK(
      says(refused(full, [](Options& o) { o.prefetch_forward = -2; }), {"prefetch_forward is -2"}));
  CHECK(says(refused(full, [](Options& o) { o.persistence_threshold = -3; }),
             {"persistence_threshold is -3"}));
  CHECK(says(refused(full, [](Options& o) { o.max_live_elements = -1; }),
             {"max_live_elements is -1"}));
  CHECK(says(refused(request_for<strategy::FullShard>(0), [](Options&) {}), {"world size is 0"}));
  CHECK(says(refused(request_for<strategy::FullShard>(1, 4), [](Options&) {}), {"4 states"}));
}

TEST_CASE("hybrids may reduce over replicas at the boundary only") {
  const Options options{.reduce_moment = ReduceMoment::ReplicaBoundary};
  const Model model = equal_modules(1, {3});
  CHECK(plan_for<strategy::HybridShard>(model, 4, options).moment == ReduceMoment::ReplicaBoundary);
  CHECK(plan_for<strategy::HybridShardGradOp>(model, 4, options).moment ==
        ReduceMoment::ReplicaBoundary);
}
