// An offload policy says where the optimizer rests.
// expect: SaysWhereTheOptimizerRests
// expect: optimizer
#include <flatshard/policy/offload.hpp>

struct Own {
  static constexpr flatshard::Tier parameters = flatshard::Tier::Device;
#ifndef BAD
  static constexpr flatshard::Tier optimizer = flatshard::Tier::Device;
#endif
};

constexpr flatshard::OffloadTraits answers = flatshard::offload_traits<Own>();
