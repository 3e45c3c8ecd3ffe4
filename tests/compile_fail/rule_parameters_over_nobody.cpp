// Who releases parameters gets them back from someone.
// expect: the strategy releases parameters that nobody else holds
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::Nobody;
#ifdef BAD
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::PerUse;
#else
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::Always;
#endif
  static constexpr bool gradients_sharded = false;
  static constexpr bool secondary_shard = false;
};

static_assert(flatshard::CheckedRules<Own, flatshard::precision::Full<float>,
                                      flatshard::offload::None>::value);
