// A place of an offload policy names a tier.
// expect: NamesATier
// expect: tier
#include <flatshard/policy/offload.hpp>

struct Own {
#ifdef BAD
  static constexpr int tier = 1;
#else
  static constexpr flatshard::Tier tier = flatshard::Tier::Host;
#endif
};

constexpr auto answers =
    flatshard::offload_traits<flatshard::offload::Place<flatshard::offload::Device, Own>>();
