// A strategy says whether it keeps a secondary shard.
// expect: SaysWhetherItKeepsASecondaryShard
// expect: secondary_shard
#include <flatshard/policy/strategy.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::World;
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
  static constexpr bool gradients_sharded = true;
#ifndef BAD
  static constexpr bool secondary_shard = false;
#endif
};

constexpr flatshard::StrategyTraits answers = flatshard::strategy_traits<Own>();
