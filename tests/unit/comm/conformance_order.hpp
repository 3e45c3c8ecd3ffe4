// Conformance of a Communicator: order, concurrency, and what steady use costs.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "allocation_count.hpp"
#include "elements.hpp"

namespace conformance {

/// Calls go round over streams that are out of step; they are matched by the order of issue.
inline void concurrent_streams(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    CAPTURE(size);
    CHECK_NOTHROW(worlds.run(size, [&](Communicator& world) {
      const auto group = world.split(world.rank() / 2, world.rank());
      std::array<std::unique_ptr<Stream>, 3> streams;
      for (auto& stream : streams) stream = worlds.make_stream();
      constexpr Elements count = 700;  // 2800 bytes: the call ends when all have read
      constexpr int rounds = 60;
      std::vector<float> sums(index(rounds * count), -1), gathered(index(rounds * size), -1);
      std::vector<float> ones(index(count), 1), ranks(rounds, static_cast<float>(world.rank()));
      for (int round = 0; round < rounds; ++round) {
        // Another rank, another order of streams: only the order of issue is common.
        Stream& one = *streams[index((round + world.rank()) % 3)];
        Stream& other = *streams[index((round * 2 + world.rank() + 1) % 3)];
        world.all_gather("ranks", &ranks[index(round)], &gathered[index(round * size)], 1,
                         DType::Float32, one);
        group->all_reduce("ones", ones.data(), &sums[index(round * count)], count, DType::Float32,
                          DType::Float32, other);
      }
      for (auto& stream : streams) stream->synchronize();
      for (float sum : sums) expect(sum == static_cast<float>(group->size()), "sums of ones");
      for (int i = 0; i < rounds * size; ++i)
        expect(gathered[index(i)] == static_cast<float>(i % size), "gathered ranks");
    }));
  }
}

inline void many_small_collectives(Worlds& worlds, int calls) {
  const int size = worlds.sizes().back();
  CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
    const auto stream = worlds.make_stream();
    std::vector<double> all(index(size));
    double sum = 0, mine = comm.rank();
    for (int call = 0; call < calls; ++call) {
      comm.all_gather("one", &mine, all.data(), 1, DType::Float64, *stream);
      comm.all_reduce("two", &mine, &sum, 1, DType::Float64, DType::Float64, *stream);
    }
    stream->synchronize();
    expect(sum == size * (size - 1) / 2, "the sum of ranks");
    for (Rank rank = 0; rank < size; ++rank) expect(all[index(rank)] == rank, "gathered ranks");
  }));
}

inline void synchronize_waits_for_all(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    CAPTURE(size);
    std::atomic<int>& arrived = worlds.fresh_counter();
    CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
      for (int round = 1; round <= 5; ++round) {
        if (comm.rank() == round % size) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        arrived.fetch_add(1);
        comm.synchronize();
        expect(arrived.load() >= round * size, "all have arrived");
      }
    }));
  }
}

/// Buffers are the caller's again as soon as the stream is done: ranks overwrite them at once.
inline void buffers_are_free_afterwards(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    CAPTURE(size);
    CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
      const auto stream = worlds.make_stream();
      constexpr Elements count = 3000;
      std::vector<float> send(index(count)), receive(index(count * size));
      for (int round = 0; round < 20; ++round) {
        std::fill(send.begin(), send.end(), static_cast<float>(round * 100 + comm.rank()));
        comm.all_gather("reused", send.data(), receive.data(), count, DType::Float32, *stream);
        stream->synchronize();
        std::fill(send.begin(), send.end(), -1.0f);
        for (Elements i = 0; i < count * size; ++i)
          expect(receive[index(i)] == static_cast<float>(round * 100 + i / count), "this round's");
      }
    }));
  }
}

/// Only where all ranks are in this process, whose operator new is counted.
inline void allocates_nothing(Worlds& worlds) {
  const int size = worlds.sizes().back();
  std::int64_t before = 0, after = -1;
  CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
    const auto group = comm.split(comm.rank() % 2, 0);
    const auto stream = worlds.make_stream();
    std::vector<float> small(8), large(index(5000 * size)), gathered(large.size());
    const auto round = [&] {
      comm.all_gather("a", small.data(), gathered.data(), 8, DType::Float32, *stream);
      comm.all_gather("b", large.data(), gathered.data(), 5000, DType::Float32, *stream);
      comm.reduce_scatter("c", large.data(), gathered.data(), 5000, DType::Float32, DType::Float32,
                          *stream);
      comm.all_reduce("d", large.data(), large.data(), 5000, DType::Float32, DType::Float32,
                      *stream);
      group->all_reduce("e", small.data(), small.data(), 8, DType::Float32, DType::Float32,
                        *stream);
      group->broadcast("f", large.data(), 5000, DType::Float32, 0, *stream);
      stream->synchronize();
    };
    round();
    comm.synchronize();
    if (comm.rank() == 0) before = flatshard_test::allocations();
    comm.synchronize();
    for (int i = 0; i < 50; ++i) round();
    comm.synchronize();
    if (comm.rank() == 0) after = flatshard_test::allocations();
    comm.synchronize();
  }));
  CHECK(after == before);
}

}  // namespace conformance
