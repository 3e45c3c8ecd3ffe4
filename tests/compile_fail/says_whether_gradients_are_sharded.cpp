// A strategy says whether gradients are sharded.
// expect: SaysWhetherGradientsAreSharded
// expect: gradients_sharded
#include <flatshard/policy/strategy.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::World;
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
#ifndef BAD
  static constexpr bool gradients_sharded = true;
#endif
  static constexpr bool secondary_shard = false;
};

constexpr flatshard::StrategyTraits answers = flatshard::strategy_traits<Own>();
