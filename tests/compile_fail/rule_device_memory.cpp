// Every part rests on a tier that this version can hold.
// expect: the offload policy places a part on a tier that this version cannot hold
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  static constexpr flatshard::Tier parameters = flatshard::Tier::Device;
#ifdef BAD
  static constexpr flatshard::Tier optimizer = flatshard::Tier::Nvme;
#else
  static constexpr flatshard::Tier optimizer = flatshard::Tier::Device;
#endif
};

static_assert(flatshard::CheckedRules<flatshard::strategy::FullShard,
                                      flatshard::precision::Full<float>, Own>::value);
