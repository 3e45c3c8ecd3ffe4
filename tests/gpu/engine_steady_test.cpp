// Between the second and the last step nothing is allocated or freed on the device or pinned, and
// the host waits for nothing but the report of the step before the last.
#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/core/cuda_device.hpp>

#include "counted_calls.hpp"
#include "offload.hpp"
#include "steady_training.hpp"

using namespace sharder_test;
using namespace flatshard_test;

TEST_CASE("engine on a GPU: steady steps allocate nothing and wait for one report") {
  for (const StrategyName strategy : all_strategies)
    for (const OffloadTraits& offload :
         {none, all_on_host, optimizer_on_host, parameters_on_host}) {
      CAPTURE(std::string(name_of(strategy)));
      CAPTURE(to_string(offload));
      const bool even = static_cast<int>(strategy) % 2 == 0;
      const PrecisionName precision = even ? PrecisionName::Bf16Mixed : PrecisionName::Fp32;
      CudaDevice device(0, {.host_threads = 2});
      Solo alone(device);
      SteadyTraining training(strategy, precision, alone, device, offload);
      constexpr int steps = 10;
      training.step();
      training.step();
      const int allocated = allocations.load(), waited = waits.load();
      const int reports = event_waits.load();
      REQUIRE(allocated > 0);  // the counters see what the library calls
      for (int i = 2; i < steps; ++i) training.step();
      CHECK(allocations.load() == allocated);
      CHECK(waits.load() == waited);
      CHECK(event_waits.load() == reports + steps - 2);
      training.engine().synchronize();
      CHECK(waits.load() > waited);
    }
}
