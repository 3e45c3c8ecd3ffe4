// A strategy says when parameters are whole.
// expect: SaysWhenParametersAreWhole
// expect: parameters_whole
#include <flatshard/policy/strategy.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::World;
#ifndef BAD
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
#endif
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

constexpr flatshard::StrategyTraits answers = flatshard::strategy_traits<Own>();
