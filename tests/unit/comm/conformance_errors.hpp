// Conformance of a Communicator: what goes wrong on one rank reaches every rank; nothing hangs.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/comm/faulty.hpp>
#include <flatshard/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "elements.hpp"

namespace conformance {

/// What every rank was told, and what the whole run threw.
struct Outcome {
  std::string run;                 // the run's message
  std::vector<std::string> ranks;  // by rank: the CommunicationError it saw, or empty

  bool all_ranks_say(const std::string& text) const {
    return std::all_of(ranks.begin(), ranks.end(), [&](auto& rank) { return rank == text; });
  }
};

/// Buffers of a rank. They outlive its stream, which may still read them when the rank throws.
struct Scratch {
  std::vector<float> send = std::vector<float>(1 << 14);
  std::vector<float> receive = std::vector<float>(1 << 16);
};

/// Runs rank_main and then ten more collectives on every rank, so that all come to know.
inline Outcome outcome(Worlds& worlds, int size,
                       const std::function<void(Communicator&, Stream&, Scratch&)>& rank_main) {
  Outcome outcome;
  outcome.ranks.resize(index(size));
  outcome.run = message_of([&] {
    worlds.run(size, [&](Communicator& comm) {
      Scratch scratch;
      const auto stream = worlds.make_stream();
      try {
        rank_main(comm, *stream, scratch);
        for (int i = 0; i < 10; ++i)
          comm.all_gather("after", scratch.send.data(), scratch.receive.data(), 1, DType::Float32,
                          *stream);
        stream->synchronize();
      } catch (const CommunicationError& error) {
        // Nor does any later call work, or wait; kept, because what is thrown now is not heard.
        const std::string first = error.what(), again = message_of([&] { comm.synchronize(); });
        outcome.ranks[index(comm.rank())] = again == first ? first : first + "; then " + again;
        throw;
      }
    });
  });
  worlds.share(outcome.ranks);
  return outcome;
}

/// The calls of `rank` and of the others, and the field in which they differ.
struct Mismatch {
  const char* field;
  CollectiveCall usual;
  CollectiveCall unusual;
};

inline std::vector<Mismatch> mismatches() {
  const auto f32 = DType::Float32, b16 = DType::BFloat16, i32 = DType::Int32;
  using enum Operation;
  return {
      {"label", {AllGather, "h.0", 4, f32, f32}, {AllGather, "h.1", 4, f32, f32}},
      {"operation", {AllGather, "h.0", 4, f32, f32}, {AllReduce, "h.0", 4, f32, f32}},
      {"count", {AllReduce, "h.0", 4, f32, f32}, {AllReduce, "h.0", 5, f32, f32}},
      {"large count", {AllGather, "h.0", 4, f32, f32}, {AllGather, "h.0", 5000, f32, f32}},
      {"dtype", {AllGather, "h.0", 4, f32, f32}, {AllGather, "h.0", 4, i32, i32}},
      {"contribution", {ReduceScatter, "h.0", 4, f32, f32}, {ReduceScatter, "h.0", 4, b16, f32}},
      {"result", {ReduceScatter, "h.0", 4, f32, f32}, {ReduceScatter, "h.0", 4, f32, b16}},
      {"root", {Broadcast, "h.0", 4, f32, f32, 0}, {Broadcast, "h.0", 4, f32, f32, 1}},
      {"synchronize", {AllGather, "h.0", 4, f32, f32}, {Synchronize}},
      {"split", {Synchronize}, {Split}},
  };
}

/// Issues `call` with buffers of that size.
inline void issue(Communicator& comm, Stream& stream, const CollectiveCall& call, void* send,
                  void* receive) {
  switch (call.operation) {
    case Operation::AllGather:
      return comm.all_gather(call.label, send, receive, call.count, call.contribution, stream);
    case Operation::ReduceScatter:
      return comm.reduce_scatter(call.label, send, receive, call.count, call.contribution,
                                 call.result, stream);
    case Operation::AllReduce:
      return comm.all_reduce(call.label, send, receive, call.count, call.contribution, call.result,
                             stream);
    case Operation::Broadcast:
      return comm.broadcast(call.label, send, call.count, call.contribution, call.root, stream);
    case Operation::Split:
      comm.split(0, 0);
      return;
    case Operation::Synchronize:
      return comm.synchronize();
  }
}

inline void mismatches_name_both_sides(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    if (size < 2) continue;
    for (const Mismatch& mismatch : mismatches()) {
      for (Rank odd : {0, 1, size - 1}) {
        CAPTURE(size);
        CAPTURE(odd);
        CAPTURE(std::string(mismatch.field));
        const auto rank_main = [&](Communicator& comm, Stream& stream, Scratch& scratch) {
          const bool differs = comm.rank() == odd;
          issue(comm, stream, differs ? mismatch.unusual : mismatch.usual, scratch.send.data(),
                scratch.receive.data());
          stream.synchronize();
        };
        const Outcome seen = outcome(worlds, size, rank_main);
        // Against rank 0: either the odd one, or, when that is rank 0 itself, the next.
        const Rank named = odd == 0 ? 1 : odd;
        const auto& of_zero = odd == 0 ? mismatch.unusual : mismatch.usual;
        const auto& of_named = odd == 0 ? mismatch.usual : mismatch.unusual;
        const std::string text = "rank " + std::to_string(named) +
                                 ": collective call 0 differs: rank 0 calls " + to_string(of_zero) +
                                 ", rank " + std::to_string(named) + " calls " +
                                 to_string(of_named);
        CHECK(seen.run == text);
        CHECK(seen.all_ranks_say(text));
      }
    }
  }
}

/// One rank throws, on its own thread or in a task of its stream, before any of its calls.
inline void an_exception_reaches_every_rank(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    for (Rank bad = 0; bad < size; ++bad) {
      for (std::int64_t call = 1; call <= 6; ++call) {
        for (bool on_stream : {false, true}) {
          CAPTURE(size);
          CAPTURE(bad);
          CAPTURE(call);
          CAPTURE(on_stream);
          const Faults faults{.fail_call = call, .fail_rank = bad, .on_stream = on_stream};
          const Outcome seen =
              outcome(worlds, size, [&](Communicator& world, Stream& stream, Scratch& scratch) {
                FaultyCommunicator comm(world, faults);
                float* const mine = scratch.send.data();
                float* const all = scratch.receive.data();
                const auto f32 = DType::Float32;
                const auto part = comm.split(comm.rank() % 2, 0);
                comm.all_gather("a", mine, all, 1000, f32, stream);
                part->all_reduce("b", mine, mine, 3, f32, f32, stream);
                comm.reduce_scatter("c", mine, all, 1000, f32, f32, stream);
                comm.synchronize();
                part->broadcast("d", mine, 1000, f32, 0, stream);
                stream.synchronize();
              });
          const std::string text = "rank " + std::to_string(bad) + ": injected failure at call " +
                                   std::to_string(call) + ": ";
          CHECK(seen.run.substr(0, text.size()) == text);
          for (Rank rank = 0; rank < size; ++rank)
            if (rank != bad) CHECK(seen.ranks[index(rank)] == seen.run);
        }
      }
    }
  }
}

inline void abort_reaches_every_rank(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    for (bool of_part : {false, true}) {
      CAPTURE(size);
      const Rank bad = size - 1;
      const Outcome seen = outcome(worlds, size, [&](Communicator& comm, Stream&, Scratch&) {
        const auto part = comm.split(0, -comm.rank());  // reversed: messages name world ranks
        if (comm.rank() == bad) (of_part ? *part : comm).abort("disk full");
      });
      const std::string text = "rank " + std::to_string(bad) + ": disk full";
      CHECK(seen.run == text);
      CHECK(seen.all_ranks_say(text));
    }
  }
}

inline void a_rank_that_returns_early_is_named(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    if (size < 2) continue;
    for (Rank early = 0; early < size; ++early) {
      CAPTURE(size);
      CAPTURE(early);
      std::vector<std::string> messages(index(size));  // by rank
      const std::string run = message_of([&] {
        worlds.run(size, [&](Communicator& comm) {
          if (comm.rank() == early) return;
          float mine = 0;
          std::vector<float> all(index(size));
          const auto stream = worlds.make_stream();
          messages[index(comm.rank())] = message_of([&] {
            comm.all_gather("h.3", &mine, all.data(), 1, DType::Float32, *stream);
            stream->synchronize();
          });
        });
      });
      const std::string begin =
          "rank " + std::to_string(early) + ": left before collective call 0, in which rank ";
      CHECK(run.substr(0, begin.size()) == begin);
      CHECK(run.find("waits: all_gather \"h.3\" of 1 float32") != std::string::npos);
      worlds.share(messages);
      for (Rank rank = 0; rank < size; ++rank)
        CHECK(messages[index(rank)] == (rank == early ? "" : run));
    }
  }
}

/// What a rank has issued before it leaves still counts.
inline void a_rank_may_leave_after_its_last_call(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    CAPTURE(size);
    CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
      std::vector<float> all(index(size));  // outlives the stream
      const auto stream = worlds.make_stream();
      const auto part = comm.split(comm.rank() % 2, 0);
      if (comm.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      comm.all_gather("last", all.data() + comm.rank(), all.data(), 1, DType::Float32, *stream);
      if (comm.rank() % 2 == 1)  // one part goes on while the other has left
        for (int i = 0; i < 50; ++i)
          part->all_reduce("more", all.data(), all.data(), 1, DType::Float32, DType::Float32,
                           *stream);
    }));
  }
}

inline void wrong_arguments_are_refused(Worlds& worlds) {
  const int size = worlds.sizes().back();
  CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
    const auto stream = worlds.make_stream();
    float x = 0;
    const auto refused = [](auto call) {
      try {
        call();
      } catch (const UsageError&) {
        return true;
      }
      return false;
    };
    expect(refused([&] { comm.all_gather("n", &x, &x, -1, DType::Float32, *stream); }), "count");
    expect(refused([&] { comm.broadcast("n", &x, 1, DType::Float32, comm.size(), *stream); }),
           "a root beyond the last");
    expect(refused([&] { comm.broadcast("n", &x, 1, DType::Float32, -1, *stream); }), "root -1");
    comm.synchronize();  // and the communicator goes on
  }));
}

}  // namespace conformance
