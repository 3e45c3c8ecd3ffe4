// An offload policy says where parameters rest.
// expect: SaysWhereParametersRest
// expect: parameters
#include <flatshard/policy/offload.hpp>

struct Own {
#ifndef BAD
  static constexpr flatshard::Tier parameters = flatshard::Tier::Device;
#endif
  static constexpr flatshard::Tier optimizer = flatshard::Tier::Device;
};

constexpr flatshard::OffloadTraits answers = flatshard::offload_traits<Own>();
