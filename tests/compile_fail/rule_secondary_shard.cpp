// A secondary shard serves a second gather.
// expect: a secondary shard without a second gather
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::World;
#ifdef BAD
  static constexpr flatshard::ParametersWhole parameters_whole =
      flatshard::ParametersWhole::UntilBackward;
#else
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
#endif
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = true;
};

static_assert(flatshard::CheckedRules<Own, flatshard::precision::Full<float>,
                                      flatshard::offload::None>::value);
