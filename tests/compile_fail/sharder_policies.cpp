// A Sharder's template head names the question that a policy leaves open.
// expect: SaysWhenParametersAreWhole
// expect: parameters_whole
#include <flatshard/sharder/sharder.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::World;
#ifndef BAD
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
#endif
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

using Trainer = flatshard::Sharder<Own, flatshard::precision::Bf16Mixed, flatshard::offload::None>;
