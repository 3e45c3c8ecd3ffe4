// Who shards gradients shards them over someone.
// expect: the strategy shards gradients over nobody
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  static constexpr flatshard::ShardScope scope = flatshard::ShardScope::Nobody;
  static constexpr flatshard::ParametersWhole parameters_whole = flatshard::ParametersWhole::Always;
#ifdef BAD
  static constexpr bool gradients_sharded = true;
#else
  static constexpr bool gradients_sharded = false;
#endif
  static constexpr bool secondary_shard = false;
};

static_assert(flatshard::CheckedRules<Own, flatshard::precision::Full<float>,
                                      flatshard::offload::None>::value);
