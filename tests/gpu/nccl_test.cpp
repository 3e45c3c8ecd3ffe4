// The conformance suite of communicators, and training, over NCCL: one rank per device.
#include <doctest/doctest.h>
#include <flatshard/comm/nccl.hpp>
#include <flatshard/comm/rendezvous.hpp>
#include <flatshard/comm/world_from_env.hpp>

#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "conformance_errors.hpp"
#include "conformance_order.hpp"
#include "conformance_values.hpp"
#include "staged_communicator.hpp"
#include "training.hpp"

using namespace conformance;
using namespace std::chrono_literals;

namespace {

int most_ranks() { return std::min(cuda_device_count(), 4); }

/// Ranks over NCCL that stay for many jobs: making a communicator takes long.
class StandingWorld {
 public:
  explicit StandingWorld(int size) : size_(size), world_(size, {.patience = 10s}) {
    thread_ = std::thread([this] {
      failure_ = message_of([this] { world_.run([this](Communicator& comm) { serve(comm); }); });
      over_.store(true);
    });
  }
  ~StandingWorld() {
    job_ = nullptr;
    round_.fetch_add(1);
    thread_.join();
  }
  StandingWorld(const StandingWorld&) = delete;
  StandingWorld& operator=(const StandingWorld&) = delete;

  /// A job that throws ends this world.
  void run(const RankMain& job) {
    job_ = &job;
    finished_.store(0);
    round_.fetch_add(1);
    while (finished_.load() < size_ && !over_.load()) std::this_thread::yield();
    if (over_.load()) throw std::runtime_error(failure_);
  }

 private:
  void serve(Communicator& comm) {
    for (int next = 1;; ++next) {
      while (round_.load() < next) std::this_thread::yield();
      if (job_ == nullptr) return;
      (*job_)(comm);
      finished_.fetch_add(1);
    }
  }

  int size_;
  NcclWorld world_;
  const RankMain* job_ = nullptr;
  std::atomic<int> round_{0}, finished_{0};
  std::atomic<bool> over_{false};
  std::string failure_;
  std::thread thread_;
};

/// One rank per device.
StandingWorld& standing_world() {
  static StandingWorld world(most_ranks());
  return world;
}

class NcclWorlds final : public Worlds {
 public:
  std::vector<int> sizes() const override { return {most_ranks()}; }
  void run(int, const RankMain& rank_main) override {
    standing_world().run([&](Communicator& comm) {
      device() = comm.device();
      flatshard_test::StagedCommunicator staged(comm);
      rank_main(staged);
    });
  }
  std::unique_ptr<Stream> make_stream() const override { return device()->make_stream(); }

 private:
  static Device*& device() {  // of this rank
    static thread_local Device* mine = nullptr;
    return mine;
  }
};

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

TEST_CASE("nccl: mismatched calls name both sides, when calls are checked") {
  const int size = most_ranks();
  if (size < 2) return;
  for (const Mismatch& mismatch : mismatches()) {
    const std::string field = mismatch.field;
    if (field != "operation" && field != "count" && field != "split") continue;
    CAPTURE(field);
    std::vector<std::string> seen(index(size));
    const NcclOptions options{.patience = 30s, .check_calls = true};
    const std::string run = message_of([&] {
      NcclWorld(size, options).run([&](Communicator& comm) {
        Device& device = *comm.device();
        const auto stream = device.make_stream();
        Buffer send(device.memory(), 1 << 16), receive(device.memory(), 1 << 16);
        seen[index(comm.rank())] = message_of([&] {
          issue(comm, *stream, comm.rank() == 1 ? mismatch.unusual : mismatch.usual, send.data(),
                receive.data());
        });
      });
    });
    const std::string text = "rank 1: collective call 0 differs: rank 0 calls " +
                             to_string(mismatch.usual) + ", rank 1 calls " +
                             to_string(mismatch.unusual);
    for (const std::string& message : seen) CHECK(message == text);
  }
}

TEST_CASE("nccl: an exception on one rank reaches every rank") {
  for (const int size : {2}) {
    if (size > most_ranks()) continue;
    for (Rank bad = 0; bad < size; ++bad)
      for (bool waits : {false, true}) {
        std::vector<std::string> seen(index(size));
        const std::string run = message_of([&] {
          NcclWorld(size, {.patience = 30s}).run([&](Communicator& comm) {
            Device& device = *comm.device();
            Buffer memory(device.memory(), 1 << 20);
            const auto stream = device.make_stream();
            const auto gather = [&](const char* label) {
              comm.all_gather(label, memory.data(), memory.data(), 0, DType::Float32, *stream);
              comm.all_reduce(label, memory.data(), memory.data(), 1000, DType::Float32,
                              DType::Float32, *stream);
            };
            gather("first");
            if (waits) stream->synchronize();
            if (comm.rank() == bad) throw std::runtime_error("out of ideas");
            seen[index(comm.rank())] = message_of([&] {
              gather("second");
              stream->synchronize();
            });
            // Nor does any later call work, or wait.
            expect(message_of([&] { comm.synchronize(); }) == seen[index(comm.rank())], "again");
          });
        });
        const std::string text = "rank " + std::to_string(bad) + ": out of ideas";
        CHECK(run == text);
        for (Rank rank = 0; rank < size; ++rank)
          if (rank != bad) CHECK(seen[index(rank)] == text);
      }
  }
}

TEST_CASE("nccl: abort reaches every rank; a wait that nothing ends has an end") {
  for (const int size : {2}) {
    if (size > most_ranks()) continue;
    const std::string aborted = message_of([&] {
      NcclWorld(size, {.patience = 30s}).run([&](Communicator& comm) {
        const auto part = comm.split(0, -comm.rank());
        if (comm.rank() == 1) part->abort("disk full");
        for (int i = 0; i < 10; ++i) comm.synchronize();
      });
    });
    CHECK(aborted == "rank 1: disk full");
    const std::string late = message_of([&] {
      NcclWorld(size, {.patience = 500ms}).run([&](Communicator& comm) {
        if (comm.rank() == 1) std::this_thread::sleep_for(2s);
        comm.synchronize();
      });
    });
    CHECK(late.find("waited 500 ms for the other ranks") != std::string::npos);
    const std::string stuck = message_of([&] {
      NcclWorld(size, {.patience = 500ms}).run([&](Communicator& comm) {
        Device& device = *comm.device();
        const Buffer memory(device.memory(), 8 * size);
        const auto stream = device.make_stream();
        if (comm.rank() == 1) std::this_thread::sleep_for(2s);
        comm.all_gather("lonely", static_cast<std::byte*>(memory.data()) + 8 * comm.rank(),
                        memory.data(), 1, DType::Float64, *stream);
        stream->synchronize();
      });
    });
    CHECK(stuck.find("did not end within 500 ms; the last collective was all_gather \"lonely\"") !=
          std::string::npos);
  }
}

TEST_CASE("nccl: wrong arguments are refused") {
  NcclWorlds worlds;
  wrong_arguments_are_refused(worlds);
  CHECK_THROWS_AS(NcclWorld{0}, UsageError);
  CHECK_THROWS_AS(NcclWorld{cuda_device_count() + 1}, UsageError);
  CudaDevice device;
  CHECK_THROWS_AS(adopt_nccl_communicator(nullptr, device), UsageError);
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

TEST_CASE("nccl: ranks as processes meet by the environment; a failure crosses processes") {
  const int size = most_ranks();
  if (size < 2) return;
  // In programs of their own: a process that has used CUDA cannot fork ranks.
  for (const bool fails : {false, true}) {
    std::vector<pid_t> children;
    for (Rank rank = 0; rank < size; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        const auto text = [](int value) { return std::to_string(value); };
        setenv("FLATSHARD_RANK", text(rank).c_str(), 1);
        setenv("FLATSHARD_WORLD_SIZE", text(size).c_str(), 1);
        setenv("FLATSHARD_LOCAL_RANK", text(rank).c_str(), 1);
        setenv("FLATSHARD_TOKEN", "a token for this test only", 1);
        setenv("FLATSHARD_PORT", fails ? "29514" : "29513", 1);
        execl(NCCL_RANK_PROGRAM, NCCL_RANK_PROGRAM, fails ? "fails" : "trains", nullptr);
        _exit(127);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == (fails ? 3 : 0));
    }
  }
}
