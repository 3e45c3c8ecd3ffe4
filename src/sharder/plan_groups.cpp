#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <bit>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

int default_shard_group(int world) {
  int group = 1;
  while (group * 2 <= world / 2 && world % (group * 2) == 0) group *= 2;
  return group;
}

int chosen_shard_group(int world, int asked) {
  if (asked == 0) return default_shard_group(world);
  FLATSHARD_EXPECTS(asked > 0 && world % asked == 0,
                    fmt::format("shard_group {} does not divide the world size {}", asked, world));
  return asked;
}

ReduceMoment chosen_moment(const StrategyTraits& strategy, std::optional<ReduceMoment> asked) {
  if (!asked) return strategy.gradients_sharded ? ReduceMoment::Micro : ReduceMoment::Boundary;
  FLATSHARD_EXPECTS(
      *asked != ReduceMoment::ReplicaBoundary || strategy.scope == ShardScope::Group,
      "ReduceMoment::ReplicaBoundary needs a strategy that shards inside a group and replicates "
      "over groups (HybridShard, HybridShardGradOp)");
  return *asked;
}

void plan_ranks(Plan& plan, int asked) {
  const StrategyTraits& strategy = plan.request.strategy;
  const int group = chosen_shard_group(plan.world, asked);
  if (strategy.scope == ShardScope::World) plan.shard_group = plan.world;
  if (strategy.scope == ShardScope::Group) plan.shard_group = group;
  plan.replicas = plan.world / plan.shard_group;
  if (strategy.secondary_shard) plan.secondary_group = group;
}

void plan_micro_steps(Plan& plan, const Options& options) {
  FLATSHARD_EXPECTS(options.max_micro_steps >= 1,
                    fmt::format("max_micro_steps is {}: a step has at least one micro-step",
                                options.max_micro_steps));
  plan.moment = chosen_moment(plan.request.strategy, options.reduce_moment);
  plan.max_micro_steps = options.max_micro_steps;
  plan.accumulation = options.accumulation;
  if (plan.accumulation == Accumulation::Tree)  // floor(log2 K)
    plan.partial_sums =
        static_cast<int>(std::bit_width(static_cast<unsigned>(plan.max_micro_steps))) - 1;
}

}  // namespace

void plan_groups(Plan& plan, const Options& options) {
  plan_ranks(plan, options.shard_group);
  plan_micro_steps(plan, options);
}

}  // namespace flatshard::detail
