// A strategy says over whom it shards.
// expect: SaysOverWhomItShards
// expect: scope
#include <flatshard/policy/strategy.hpp>

struct Own {
#ifndef BAD
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::World;
#endif
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

constexpr flatshard::StrategyTraits answers = flatshard::strategy_traits<Own>();
