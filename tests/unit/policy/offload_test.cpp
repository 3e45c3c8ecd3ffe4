#include <flatshard/policy/offload.hpp>

#include <doctest/doctest.h>

#include <type_traits>

namespace flatshard {

namespace hand_made {

struct OptimizerOnHost {
  static constexpr Tier parameters = Tier::Device;
  static constexpr Tier optimizer = Tier::Host;
};
struct NoParameters {
  static constexpr Tier optimizer = Tier::Host;
};
struct NoOptimizer {
  static constexpr Tier parameters = Tier::Device;
};
struct Numbers {
  static constexpr int parameters = 0;
  static constexpr int optimizer = 0;
};

}  // namespace hand_made

using namespace hand_made;

TEST_CASE("without offload everything rests on the device") {
  CHECK(offload_traits<offload::None>() == OffloadTraits{Tier::Device, Tier::Device});
  CHECK(std::is_empty_v<offload::None>);
}

TEST_CASE("places of parameters and optimizer are chosen one by one, or alike") {
  using offload::Cpu, offload::Device, offload::Nvme, offload::Place;
  CHECK(offload_traits<Place<Device, Device>>() == offload_traits<offload::None>());
  CHECK(offload_traits<Place<Device, Cpu>>() == OffloadTraits{Tier::Device, Tier::Host});
  CHECK(offload_traits<Place<Cpu, Device>>() == OffloadTraits{Tier::Host, Tier::Device});
  CHECK(offload_traits<Place<Nvme, Cpu>>() == OffloadTraits{Tier::Nvme, Tier::Host});
  CHECK(std::is_same_v<offload::All<Cpu>, Place<Cpu, Cpu>>);
  CHECK(std::is_empty_v<Place<Nvme, Nvme>>);
}

TEST_CASE("a struct of two tiers is an offload policy, anything else is none") {
  CHECK(OffloadPolicy<OptimizerOnHost>);
  CHECK(offload_traits<OptimizerOnHost>() == OffloadTraits{Tier::Device, Tier::Host});
  CHECK_FALSE(SaysWhereParametersRest<NoParameters>);
  CHECK_FALSE(SaysWhereTheOptimizerRests<NoOptimizer>);
  CHECK_FALSE(SaysWhereParametersRest<Numbers>);
  CHECK_FALSE(SaysWhereTheOptimizerRests<Numbers>);
  CHECK_FALSE(OffloadPolicy<NoParameters>);
  CHECK_FALSE(OffloadPolicy<NoOptimizer>);
}

}  // namespace flatshard
