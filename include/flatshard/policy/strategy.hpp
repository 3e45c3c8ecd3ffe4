// Strategy policies. The one question they answer: what is sharded, and when is it whole?
#pragma once

#include <concepts>

namespace flatshard {

/// Over whom master weights, optimizer state and (where sharded) gradients and parameters are cut.
enum class ShardScope {
  Nobody,  // every rank holds everything
  Group,   // ranks of one shard group (Options::shard_group contiguous ranks); groups are replicas
  World
};

/// When the parameters of a unit are whole on a rank.
enum class ParametersWhole {
  Always,         // between steps too
  UntilBackward,  // gathered at the first use of a step, kept until the step changes them
  PerUse          // gathered for forward, released, gathered again for backward
};

namespace strategy {

/// Everything on every rank; gradients are all-reduced (FSDP NO_SHARD, DeepSpeed stage 0).
struct NoShard {
  static constexpr ShardScope scope = ShardScope::Nobody;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::Always;
  static constexpr bool gradients_sharded = false;
  static constexpr bool secondary_shard = false;
};

/// Master weights and optimizer state sharded; gradients whole until the last micro-step
/// (DeepSpeed stage 1).
struct ShardOptimizer {
  static constexpr ShardScope scope = ShardScope::World;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::Always;
  static constexpr bool gradients_sharded = false;
  static constexpr bool secondary_shard = false;
};

/// Gradients sharded too; parameters gathered once a step (FSDP SHARD_GRAD_OP, DeepSpeed stage 2).
struct ShardGradOp {
  static constexpr ShardScope scope = ShardScope::World;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::UntilBackward;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

/// Parameters, gradients and state sharded over all ranks (FSDP FULL_SHARD, DeepSpeed stage 3).
struct FullShard {
  static constexpr ShardScope scope = ShardScope::World;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::PerUse;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

/// FullShard inside a shard group, replicated over the groups (FSDP HYBRID_SHARD, MiCS).
struct HybridShard {
  static constexpr ShardScope scope = ShardScope::Group;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::PerUse;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

/// ShardGradOp inside a shard group, replicated over the groups (FSDP _HYBRID_SHARD_ZERO2).
struct HybridShardGradOp {
  static constexpr ShardScope scope = ShardScope::Group;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::UntilBackward;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

/// FullShard over all ranks; after the first gather of a step a second shard stays inside the
/// group, from which later gathers come (FSDP2 reshard_after_forward=int, ZeRO++ hpZ).
struct FullShardSecondary {
  static constexpr ShardScope scope = ShardScope::World;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::PerUse;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = true;
};

}  // namespace strategy

template <class Policy>
concept SaysOverWhomItShards = requires {
  { Policy::scope } -> std::same_as<const ShardScope&>;
};
template <class Policy>
concept SaysWhenParametersAreWhole = requires {
  { Policy::parameters_whole } -> std::same_as<const ParametersWhole&>;
};
template <class Policy>
concept SaysWhetherGradientsAreSharded = requires {
  { Policy::gradients_sharded } -> std::same_as<const bool&>;
};
template <class Policy>
concept SaysWhetherItKeepsASecondaryShard = requires {
  { Policy::secondary_shard } -> std::same_as<const bool&>;
};

/// A type that answers what is sharded and when it is whole. Write your own as a struct of these
/// four constants (examples/custom_policy.cpp).
template <class Policy>
concept StrategyPolicy = SaysOverWhomItShards<Policy> && SaysWhenParametersAreWhole<Policy> &&
    SaysWhetherGradientsAreSharded<Policy> && SaysWhetherItKeepsASecondaryShard<Policy>;

/// The answers as a value, for the Plan.
struct StrategyTraits {
  ShardScope scope = ShardScope::Nobody;                       // over whom everything is cut
  ParametersWhole parameters_whole = ParametersWhole::Always;  // when a unit is whole
  bool gradients_sharded = false;                              // reduced to their owner
  bool secondary_shard = false;                                // a second shard in the group
  friend constexpr bool operator==(const StrategyTraits&, const StrategyTraits&) = default;
};

/// The answers of a policy.
template <StrategyPolicy Policy>
constexpr StrategyTraits strategy_traits() {
  return {Policy::scope, Policy::parameters_whole, Policy::gradients_sharded,
          Policy::secondary_shard};
}

static_assert(StrategyPolicy<strategy::NoShard> && StrategyPolicy<strategy::ShardOptimizer> &&
              StrategyPolicy<strategy::ShardGradOp> && StrategyPolicy<strategy::FullShard> &&
              StrategyPolicy<strategy::HybridShard> &&
              StrategyPolicy<strategy::HybridShardGradOp> &&
              StrategyPolicy<strategy::FullShardSecondary>);

}  // namespace flatshard
