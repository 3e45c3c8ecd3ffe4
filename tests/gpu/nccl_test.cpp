// The conformance suite of communicators, and training, over NCCL: one rank per device.
#include <doctest/doctest.h>
#include <flatshard/comm/nccl.hpp>

#include <nccl.h>

#include "conformance_errors.hpp"
#include "conformance_order.hpp"
#include "conformance_values.hpp"
#include "nccl_worlds.hpp"
#include "training.hpp"

using namespace conformance;
using namespace std::chrono_literals;

namespace {

const std::vector<Elements> counts{0, 1, 7, 257, 1025};

}  // namespace

TEST_CASE("nccl: all_gather and broadcast of every dtype") {
  NcclWorlds worlds;
  gathers_and_broadcasts(worlds, counts);
}

TEST_CASE("nccl: reductions are the tree, rounded once") {
  NcclWorlds worlds;
  reductions_of_all_dtypes(worlds, counts);
}

TEST_CASE("nccl: large counts") {
  NcclWorlds worlds;
  for_worlds(worlds, {large_count}, [](Communicator& comm, Stream& stream, Elements count) {
    check_all_gather(comm, stream, count, DType::Float32);
    check_broadcast(comm, stream, count, DType::Int8);
  });
  reductions<Bf16, float>(worlds, {large_count});
  reductions<float, float>(worlds, {large_count});
}

TEST_CASE("nccl: splits, and splits of splits") {
  NcclWorlds worlds;
  splits(worlds);
}

TEST_CASE("nccl: collectives on concurrent streams are matched by the order of issue") {
  NcclWorlds worlds;
  concurrent_streams(worlds);
}

TEST_CASE("nccl: many small collectives") {
  NcclWorlds worlds;
  many_small_collectives(worlds, 300);
}

TEST_CASE("nccl: synchronize waits for all; buffers are free when the stream is done") {
  NcclWorlds worlds;
  synchronize_waits_for_all(worlds);
  buffers_are_free_afterwards(worlds);
}

TEST_CASE("nccl: sums on two streams take turns in the scratch that they share") {
  if (most_ranks() < 2) return;
  constexpr Elements count = 5000;
  constexpr int rounds = 200;
  standing_world().run([&](Communicator& comm) {
    Device& device = *comm.device();
    const std::unique_ptr<Stream> streams[] = {device.make_stream(), device.make_stream()};
    const Buffer sends[] = {Buffer(device.memory(), count * 4), Buffer(device.memory(), count * 4)};
    const Buffer sums(device.memory(), rounds * count * 4);
    const auto sum = [&](int round) {
      return static_cast<float*>(sums.data()) + Elements{round} * count;
    };
    for (int round = 0; round < rounds; ++round) {
      Stream& stream = *streams[round % 2];
      void* const send = sends[round % 2].data();
      device.kernels().fill(init::constant{1.0 + round}, DType::Float32, send, 0, count, stream);
      comm.all_reduce("sum", send, sum(round), count, DType::Float32, DType::Float32, stream);
    }
    for (const auto& stream : streams) stream->synchronize();
    std::vector<float> found(static_cast<std::size_t>(rounds * count));
    device.copy(sums.data(), found.data(), rounds * count * 4, *streams[0]);
    streams[0]->synchronize();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto round = static_cast<float>(i / count);
      expect(found[i] == (1 + round) * static_cast<float>(comm.size()), "a sum of its own round");
    }
  });
}

TEST_CASE("nccl: the user's own communicator is used and stays the user's") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const int size = most_ranks();
  CHECK_NOTHROW(NcclWorld(size, {.patience = 30s}).run([&](Communicator& comm) {
    ncclComm_t own = nullptr;
    expect(ncclCommInitRank(&own, size, id, comm.rank()) == ncclSuccess, "a communicator");
    auto& device = static_cast<CudaDevice&>(*comm.device());
    const auto stream = device.make_stream();
    {
      flatshard_test::StagedCommunicator adopted(
          adopt_nccl_communicator(own, device, {.patience = 30s}));
      expect(adopted.rank() == comm.rank() && adopted.size() == size, "rank and size");
      check_part(adopted, *stream);
      check_part(*adopted.split(0, -adopted.rank()), *stream);
    }
    int count = 0;
    expect(ncclCommCount(own, &count) == ncclSuccess && count == size, "it is still there");
    expect(ncclCommDestroy(own) == ncclSuccess, "and ends");
  }));
}

TEST_CASE("nccl: every strategy has the host's bits, run to run") {
  using namespace sharder_test;
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training;
      training.strategy = strategy;
      training.precision = precision;
      training.world = most_ranks();
      training.micro_steps = 2;
      training.options.max_grad_norm = 1.0;
      CAPTURE(to_string(training));
      const Trained expected = train(training);
      training.hooks.take_device = true;
      training.hooks.run = [](int, const RankMain& rank_main) { standing_world().run(rank_main); };
      for (int run = 0; run < 2; ++run) {
        const Trained found = train(training);
        CHECK(found.hash() == expected.hash());
        CHECK(found.reports == expected.reports);
        CHECK(found.replicas_agree);
      }
    }
}

TEST_CASE("nccl: the device's memory is the Plan's, with the scratch of sums") {
  using namespace sharder_test;
  for (const StrategyName strategy : {StrategyName::FullShard, StrategyName::NoShard}) {
    Training training;
    training.strategy = strategy;
    training.precision = PrecisionName::Bf16Mixed;
    training.world = most_ranks();
    training.hooks.take_device = true;
    training.hooks.run = [](int ranks, const RankMain& rank_main) {
      NcclWorld(ranks, {.patience = 30s}).run(rank_main);
    };
    const Trained found = train(training);
    CHECK(found.high_water == found.arena_bytes);
  }
}
