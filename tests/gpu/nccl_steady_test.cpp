// Between the second and the last step of ranks over NCCL nothing is allocated or freed on a device
// or pinned, by us or by NCCL, and no rank waits for a whole stream or device.
#include <doctest/doctest.h>

#include <barrier>

#include "counted_calls.hpp"
#include "nccl_worlds.hpp"
#include "steady_training.hpp"

using namespace sharder_test;
using namespace flatshard_test;

TEST_CASE("nccl: steady steps allocate nothing and wait for no stream") {
  const int ranks = conformance::most_ranks();
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      if (flatshard_test::short_run() && strategy != StrategyName::HybridShard) continue;
      CAPTURE(std::string(name_of(strategy)));
      std::barrier<> all(ranks);
      std::atomic<int> allocated{0}, waited{0}, allocated_before{0};
      conformance::standing_world().run([&](Communicator& comm) {
        SteadyTraining training(strategy, precision, comm, *comm.device());
        training.step();
        training.step();
        all.arrive_and_wait();
        const int allocations_before = allocations.load(), waits_before = waits.load();
        all.arrive_and_wait();
        for (int i = 2; i < 10; ++i) training.step();
        all.arrive_and_wait();
        if (comm.rank() == 0) {
          allocated_before = allocations_before;
          allocated = allocations.load() - allocations_before;
          waited = waits.load() - waits_before;
        }
        all.arrive_and_wait();
        training.engine().synchronize();
      });
      CHECK(allocated_before.load() > 0);  // the counters see what is called
      CHECK(allocated.load() == 0);
      CHECK(waited.load() == 0);
    }
}
