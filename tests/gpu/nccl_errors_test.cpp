// What goes wrong on one rank over NCCL reaches every rank, also across processes.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <flatshard/core/host_stream.hpp>

#include <atomic>
#include <cstdlib>

#include "conformance_errors.hpp"
#include "nccl_worlds.hpp"

using namespace conformance;

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

TEST_CASE("nccl: a copy between pinned blocks tells of a rank that failed, with a lane") {
  if (most_ranks() < 2) return;
  std::string seen;
  const std::string run = message_of([&] {
    NcclWorld(2, {.patience = 30s}).run([&](Communicator& comm) {
      Device& device = *comm.device();
      Buffer memory(device.memory(), 1 << 20), pinned(device.host_memory(), 1 << 13);
      auto* const halves = static_cast<std::byte*>(pinned.data());
      const auto stream = device.make_stream(), lane = device.make_host_side_stream();
      comm.synchronize();
      if (comm.rank() == 1) {
        std::this_thread::sleep_for(50ms);  // the other is in the copy
        throw std::runtime_error("left");
      }
      seen = message_of([&] {
        comm.all_reduce("alone", memory.data(), memory.data(), 1000, DType::Float32, DType::Float32,
                        *stream);
        device.copy(halves, halves + (1 << 12), 1 << 12, *stream);
      });
    });
  });
  CHECK(run == "rank 1: left");
  CHECK(seen == run);
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
            const auto first = [&] {
              gather("first");
              if (waits) stream->synchronize();
            };
            if (comm.rank() == bad) {
              first();
              throw std::runtime_error("out of ideas");
            }
            seen[index(comm.rank())] = message_of([&] {
              first();  // the other may be further already
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

TEST_CASE("nccl: who waits for a stream after an abort is told of it") {
  if (most_ranks() < 2) return;
  std::atomic<bool> went_on{false};
  const std::string run = message_of([&] {
    NcclWorld(2, {.patience = 30s}).run([&](Communicator& comm) {
      Device& device = *comm.device();
      const Buffer memory(device.memory(), 16);
      const auto stream = device.make_stream();
      comm.broadcast("begun", memory.data(), 2, DType::Float64, 0, *stream);
      comm.abort("disk full");
      stream->synchronize();
      went_on = true;
    });
  });
  CHECK(run.find(": disk full") != std::string::npos);
  CHECK(!went_on);
}

TEST_CASE("nccl: who waits for a stream behind a collective is told of a failure") {
  if (most_ranks() < 2) return;
  const std::string run = message_of([&] {
    NcclWorld(2, {.patience = 30s}).run([&](Communicator& comm) {
      Device& device = *comm.device();
      const Buffer memory(device.memory(), 16);
      const auto stream = device.make_stream(), behind = device.make_stream();
      const auto event = device.make_event();
      if (comm.rank() == 1) {
        std::this_thread::sleep_for(50ms);  // the other waits by then
        throw std::runtime_error("out of ideas");
      }
      comm.broadcast("lonely", memory.data(), 2, DType::Float64, 1, *stream);
      stream->record(*event);
      behind->wait(*event);
      behind->synchronize();
    });
  });
  CHECK(run == "rank 1: out of ideas");
}

TEST_CASE("nccl: a lane of the host does not work on what an abort ended") {
  if (most_ranks() < 2) return;
  for (const bool by_lane : {true, false}) {
    std::atomic<bool> worked{false};
    const std::string run = message_of([&] {
      NcclWorld(2, {.patience = 30s}).run([&](Communicator& comm) {
        Device& device = *comm.device();
        const Buffer memory(device.memory(), 1 << 20);
        const auto stream = device.make_stream();
        const auto lane = device.make_host_side_stream();
        const auto event = device.make_event();
        const auto reduce = [&](const char* label) {
          comm.all_reduce(label, memory.data(), memory.data(), 1000, DType::Float32, DType::Float32,
                          *stream);
        };
        reduce("first");
        stream->synchronize();
        if (comm.rank() == 1) throw std::runtime_error("out of ideas");
        reduce("second");
        stream->record(*event);
        lane->wait(*event);
        host_stream(*lane).enqueue([&] { worked = true; });
        (by_lane ? lane : stream)->synchronize();
      });
    });
    CHECK(run == "rank 1: out of ideas");
    CHECK(!worked);
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
