#include <flatshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include <array>

#include "conformance_errors.hpp"
#include "conformance_order.hpp"
#include "conformance_values.hpp"
#include "thread_worlds.hpp"

using namespace conformance;
using namespace std::chrono_literals;

namespace {

constexpr std::array forms{StreamForm::Inline, StreamForm::Threaded};

// Runs a conformance test on threads with both forms of streams.
template <class Test>
void on_both_forms(std::vector<int> sizes, Test test) {
  for (StreamForm form : forms) {
    const std::string name = form == StreamForm::Inline ? "inline streams" : "threaded streams";
    CAPTURE(name);
    ThreadWorlds worlds(form, sizes);
    test(worlds);
  }
}

const std::vector<int> one_to_nine{1, 2, 3, 4, 5, 6, 7, 8, 9};

}  // namespace

TEST_CASE("threads: all_gather and broadcast of every dtype") {
  on_both_forms({1, 2, 3, 4, 9},
                [](Worlds& worlds) { gathers_and_broadcasts(worlds, usual_counts); });
}

TEST_CASE("threads: reductions are the tree, rounded once") {
  ThreadWorlds with_inline_streams(StreamForm::Inline, one_to_nine);
  reductions_of_all_dtypes(with_inline_streams, usual_counts);
  ThreadWorlds with_threaded_streams(StreamForm::Threaded, {2, 3, 9});
  reductions_of_all_dtypes(with_threaded_streams, usual_counts);
}

TEST_CASE("threads: large counts") {
  ThreadWorlds worlds(StreamForm::Threaded, {2, 3, 4});
  for_worlds(worlds, {large_count}, [](Communicator& comm, Stream& stream, Elements count) {
    check_all_gather(comm, stream, count, DType::Float32);
    check_broadcast(comm, stream, count, DType::Int8);
  });
  reductions<Bf16, float>(worlds, {large_count});
}

TEST_CASE("threads: splits, and splits of splits") { on_both_forms(one_to_nine, splits); }

TEST_CASE("threads: collectives on concurrent streams are matched by the order of issue") {
  ThreadWorlds worlds(StreamForm::Threaded, {1, 2, 3, 4, 8});
  concurrent_streams(worlds);
}

TEST_CASE("threads: many small collectives") {
  on_both_forms({4}, [](Worlds& worlds) { many_small_collectives(worlds, 10'000); });
}

TEST_CASE("threads: synchronize waits for all") {
  on_both_forms(one_to_nine, synchronize_waits_for_all);
}

TEST_CASE("threads: buffers are free when the stream is done") {
  on_both_forms({1, 2, 4, 7}, buffers_are_free_afterwards);
}

TEST_CASE("threads: steady collectives allocate nothing") { on_both_forms({4}, allocates_nothing); }

TEST_CASE("threads: mismatched calls name both sides, on all ranks") {
  on_both_forms({2, 3, 5}, mismatches_name_both_sides);
}

TEST_CASE("threads: an exception reaches every rank") {
  on_both_forms({1, 2, 4}, an_exception_reaches_every_rank);
}

TEST_CASE("threads: abort reaches every rank") {
  on_both_forms({1, 2, 5}, abort_reaches_every_rank);
}

TEST_CASE("threads: a rank that returns early is named") {
  on_both_forms({2, 3, 5}, a_rank_that_returns_early_is_named);
}

TEST_CASE("threads: a rank may leave after its last call") {
  on_both_forms(one_to_nine, a_rank_may_leave_after_its_last_call);
}

TEST_CASE("threads: wrong arguments are refused") {
  on_both_forms({3}, wrong_arguments_are_refused);
}

TEST_CASE("decorated threads keep the values and the order") {
  for (StreamForm form : forms) {
    DecoratedWorlds worlds(form, {1, 3, 4});
    reductions<float, float>(worlds, usual_counts);
    splits(worlds);
    buffers_are_free_afterwards(worlds);
    if (form == StreamForm::Threaded) concurrent_streams(worlds);
  }
}

TEST_CASE("a world needs at least one rank") {
  CHECK_THROWS_AS(ThreadWorld{0}, UsageError);
  CHECK_THROWS_AS(ThreadWorld{-3}, UsageError);
}

TEST_CASE("a world runs again, also after a failure; the exception itself is nested") {
  ThreadWorld world{3};
  CHECK(world.size() == 3);
  for (int round = 0; round < 3; ++round) {
    std::string nested;
    try {
      world.run([](Communicator& comm) {
        if (comm.rank() == 1) throw NonFiniteError("gradient of h.0 is not finite");
        comm.synchronize();
      });
    } catch (const CommunicationError& error) {
      CHECK(std::string(error.what()) == "rank 1: gradient of h.0 is not finite");
      CHECK(error.rank() == 1);
      try {
        std::rethrow_if_nested(error);
      } catch (const NonFiniteError& inner) {
        nested = inner.what();
      }
    }
    CHECK(nested == "gradient of h.0 is not finite");
    CHECK_NOTHROW(world.run([](Communicator& comm) { comm.synchronize(); }));
  }
}

TEST_CASE("a failure that rank functions swallow is still the run's") {
  ThreadWorld world{2};
  const std::string run = message_of([&] {
    world.run([](Communicator& comm) {
      if (comm.rank() == 0) comm.abort("gave up");
      message_of([&] { comm.synchronize(); });
    });
  });
  CHECK(run == "rank 0: gave up");
}

TEST_CASE("what is thrown need not be a std::exception") {
  const std::string run =
      message_of([] { ThreadWorld{2}.run([](Communicator& comm) { throw comm.rank(); }); });
  CHECK(run.find("an exception that is not a std::exception") != std::string::npos);
}

TEST_CASE("an error of a task on one rank's stream reaches ranks that wait in a collective") {
  const std::string run = message_of([] {
    ThreadWorld{3}.run([](Communicator& comm) {
      const auto compute = make_host_stream(StreamForm::Threaded);
      const auto other = make_host_stream(StreamForm::Threaded);
      float x = 1;
      if (comm.rank() == 2) compute->enqueue([] { throw std::runtime_error("kernel failed"); });
      std::this_thread::sleep_for(1ms);
      // Rank 2 waits on another stream, and would never look at the one that failed.
      const std::string issued = message_of(
          [&] { comm.all_reduce("x", &x, &x, 1, DType::Float32, DType::Float32, *compute); });
      message_of([&] {
        comm.all_reduce("y", &x, &x, 1, DType::Float32, DType::Float32, *other);
        other->synchronize();
      });
      if (comm.rank() != 2) compute->synchronize();
    });
  });
  CHECK(run == "rank 2: kernel failed");
}

TEST_CASE("a rank that throws while its parts unwind is named by its own message") {
  for (int round = 0; round < 20; ++round) {
    const std::string run = message_of([] {
      ThreadWorld{4}.run([](Communicator& comm) {
        const auto group = comm.split(comm.rank() / 2, 0);
        float x = 1;
        InlineStream stream;
        if (comm.rank() == 3) throw std::runtime_error("out of ideas");
        group->all_reduce("x", &x, &x, 1, DType::Float32, DType::Float32, stream);
        comm.all_reduce("y", &x, &x, 1, DType::Float32, DType::Float32, stream);
        stream.synchronize();
      });
    });
    CHECK(run == "rank 3: out of ideas");
  }
}

TEST_CASE("whoever destroys a part has left it") {
  const std::string run = message_of([] {
    ThreadWorld{2}.run([](Communicator& comm) {
      auto part = comm.split(0, 0);
      if (comm.rank() == 1) part.reset();
      if (comm.rank() == 0) part->synchronize();
      comm.synchronize();
    });
  });
  CHECK(run == "rank 1: left before collective call 0, in which rank 0 waits: synchronize");
}

TEST_CASE("patience ends a wait that nothing else would end") {
  // The ranks wait for each other in different communicators.
  const ThreadWorldOptions options{.patience = 100ms};
  const std::string run = message_of([&] {
    ThreadWorld(2, options).run([](Communicator& comm) {
      const auto part = comm.split(0, 0);
      (comm.rank() == 0 ? comm : *part).synchronize();
      (comm.rank() == 0 ? *part : comm).synchronize();
    });
  });
  CHECK(run.find("did not come within 100 ms to collective call") != std::string::npos);
}

TEST_CASE("streams that outlive the rank functions finish what was issued") {
  constexpr int size = 3;
  std::array<std::unique_ptr<HostStream>, size> streams;
  std::array<std::array<float, size>, size> all{};
  std::array<float, size> mine{1, 2, 3};
  std::atomic<bool> open{false};
  for (auto& stream : streams) stream = make_host_stream(StreamForm::Threaded);
  ThreadWorld{size}.run([&](Communicator& comm) {
    const auto r = index(comm.rank());
    streams[r]->enqueue([&open] {
      while (!open.load()) std::this_thread::yield();
    });
    comm.all_gather("late", &mine[r], all[r].data(), 1, DType::Float32, *streams[r]);
  });
  open.store(true);
  for (auto& stream : streams) stream->synchronize();
  for (const auto& gathered : all) CHECK(gathered == mine);
}

TEST_CASE("a kernel that throws on one rank fails all") {
  // Sums of integers are refused by the host kernels.
  std::string run = message_of([] {
    ThreadWorld{2}.run([](Communicator& comm) {
      std::int32_t x = 0;
      InlineStream stream;
      comm.all_reduce("counts", &x, &x, 1, DType::Int32, DType::Int32, stream);
      stream.synchronize();
    });
  });
  CHECK(run.find("floating-point dtype") != std::string::npos);
}
