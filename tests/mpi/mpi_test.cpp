// What is particular to ranks that MPI connects.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <numeric>
#include <thread>

#include "allocation_count.hpp"
#include "mpi_worlds.hpp"

using namespace conformance;

namespace {

using MpiClock = std::chrono::steady_clock;

/// What every rank's `rank_main` threw, by rank.
std::vector<std::string> messages_of(MpiWorlds& worlds, const RankMain& rank_main) {
  const int size = worlds.sizes().back();
  std::vector<std::string> messages(index(size));
  messages[index(world_rank())] = message_of([&] { worlds.run(size, rank_main); });
  worlds.share(messages);
  return messages;
}

void expect_all(const std::vector<std::string>& messages, const std::string& text) {
  for (const std::string& message : messages) CHECK(message == text);
}

}  // namespace

TEST_CASE("mpi: ranks and members are MPI's") {
  MpiWorld world;
  world.run([&](Communicator& comm) {
    int rank = -1, size = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    expect(comm.rank() == rank && comm.size() == size, "as MPI says");
    expect(comm.canonical_reduction() && comm.any_thread() && !comm.needs_scratch(), "what it is");
    for (Rank r = 0; r < size; ++r) expect(comm.members()[index(r)] == r, "members");
  });
}

TEST_CASE("mpi: options that cannot be are refused") {
  CHECK_THROWS_AS(MpiWorld({.patience = 0s}), UsageError);
  CHECK_THROWS_AS(MpiWorld({.silence = -1s}), UsageError);
  CHECK_THROWS_AS(MpiWorld({.largest_message = 0}), UsageError);
  CHECK_THROWS_AS(MpiWorld({.largest_message = Bytes{1} << 31}), UsageError);
}

TEST_CASE("mpi: steady collectives allocate nothing") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
    MpiWorlds worlds(form);
    std::int64_t before = 0, after = -1;
    CHECK_NOTHROW(worlds.run(0, [&](Communicator& comm) {
      const auto group = comm.split(comm.rank() % 2, 0);
      const auto stream = worlds.make_stream();
      const Elements count = 70'001;
      std::vector<float> large(index(count * comm.size())), gathered(large.size());
      const auto round = [&] {
        comm.all_gather("a", large.data(), gathered.data(), 8, DType::Float32, *stream);
        comm.all_gather("b", large.data(), gathered.data(), count, DType::Float32, *stream);
        comm.reduce_scatter("c", large.data(), gathered.data(), count, DType::Float32,
                            DType::Float32, *stream);
        comm.all_reduce("d", large.data(), large.data(), count, DType::Float32, DType::Float32,
                        *stream);
        group->all_reduce("e", large.data(), large.data(), 8, DType::Float32, DType::Float32,
                          *stream);
        group->broadcast("f", large.data(), count, DType::Float32, 0, *stream);
        stream->synchronize();
      };
      for (int i = 0; i < 3; ++i) round();
      before = flatshard_test::allocations();
      for (int i = 0; i < 20; ++i) round();
      after = flatshard_test::allocations();
      comm.synchronize();
    }));
    CHECK(after == before);
  }
}

TEST_CASE("mpi: the user's own communicator, of some of the ranks") {
  const int size = world_size();
  const Rank rank = world_rank();
  MPI_Comm reversed = MPI_COMM_NULL;  // of even and of odd ranks
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &reversed);
  {
    const auto comm = adopt_mpi_communicator(reversed, test_options());
    const int mine = (size + 1 - rank % 2) / 2;
    CHECK(comm->size() == mine);
    CHECK(comm->rank() == mine - 1 - rank / 2);
    CHECK(comm->members()[0] == 0);
    std::vector<double> all(index(mine), -1);
    const double value = rank;
    InlineStream stream;
    comm->all_gather("ranks", &value, all.data(), 1, DType::Float64, stream);
    const auto pairs = comm->split(comm->rank() / 2, 0);
    double sum = -1;
    pairs->all_reduce("sum", &value, &sum, 1, DType::Float64, DType::Float64, stream);
    stream.synchronize();
    double expected = 0;
    for (const Rank member : pairs->members()) expected += all[index(member)];
    CHECK(sum == expected);
    for (int i = 0; i < mine; ++i) CHECK(all[index(i)] == 2 * (mine - 1 - i) + rank % 2);
  }
  int still = -1;  // it is still the user's
  MPI_Allreduce(&rank, &still, 1, MPI_INT, MPI_MAX, reversed);
  CHECK(still == (size - 1 - rank % 2) / 2 * 2 + rank % 2);
  MPI_Comm_free(&reversed);
}

TEST_CASE("mpi: a communicator that cannot be adopted is refused") {
  CHECK_THROWS_AS(adopt_mpi_communicator(MPI_COMM_NULL), UsageError);
  const std::string foreign = message_of([] { adopt_mpi_communicator(short{0}); });
  CHECK(foreign.find("it has 2 bytes") != std::string::npos);
}

TEST_CASE("mpi: an exception that ends the use of an adopted communicator reaches the others") {
  if (world_size() < 2) return;
  std::vector<std::string> messages(index(world_size()));
  messages[index(world_rank())] = message_of([] {
    const auto comm = adopt_mpi_communicator(MPI_COMM_WORLD, test_options());
    if (comm->rank() == 1) throw std::runtime_error("out of ideas");
    for (int i = 0; i < 3; ++i) comm->synchronize();
  });
  MpiWorlds(StreamForm::Inline).share(messages);
  CHECK(messages[1] == "out of ideas");
  CHECK(messages[0] == "rank 1: an exception has ended its use of the communicator");
}

TEST_CASE("mpi: a world runs again, also after a failure; the exception itself is nested") {
  MpiWorld world(test_options());
  for (int round = 0; round < 3; ++round) {
    std::string nested, text;
    try {
      world.run([](Communicator& comm) {
        if (comm.rank() == comm.size() - 1) throw NonFiniteError("gradient of h.0 is not finite");
        comm.synchronize();
      });
    } catch (const CommunicationError& error) {
      text = error.what();
      try {
        std::rethrow_if_nested(error);
      } catch (const NonFiniteError& inner) {
        nested = inner.what();
      } catch (const CommunicationError&) {
      }
    }
    const Rank last = world.size() - 1;
    CHECK(text == "rank " + std::to_string(last) + ": gradient of h.0 is not finite");
    CHECK(nested == (world.rank() == last ? "gradient of h.0 is not finite" : ""));
    CHECK_NOTHROW(world.run([](Communicator& comm) { comm.synchronize(); }));
  }
}

TEST_CASE("mpi: a failure that rank functions swallow is still the run's") {
  MpiWorlds worlds(StreamForm::Inline);
  expect_all(messages_of(worlds,
                         [](Communicator& comm) {
                           if (comm.rank() == 0) comm.abort("gave up");
                           message_of([&] { comm.synchronize(); });
                         }),
             "rank 0: gave up");
}

TEST_CASE("mpi: ranks that fail at once all throw the same failure") {
  MpiWorlds worlds(StreamForm::Inline);
  for (int round = 0; round < 5; ++round) {
    const auto messages = messages_of(worlds, [](Communicator& comm) {
      comm.synchronize();
      throw std::runtime_error("on rank " + std::to_string(comm.rank()));
    });
    expect_all(messages, messages[0]);
    CHECK(messages[0].find(": on rank ") != std::string::npos);
  }
}

TEST_CASE("mpi: a failure reaches a rank that computes, before its next call waits") {
  if (world_size() < 2) return;
  MpiWorlds worlds(StreamForm::Inline);
  std::vector<std::string> texts(index(world_size()), "rank 1: out of ideas");
  auto shortest = MpiClock::duration::max();  // of five: other processes take their time, too
  for (int round = 0; round < 5; ++round)
    expect_all(messages_of(worlds,
                           [&](Communicator& comm) {
                             comm.synchronize();
                             if (comm.rank() == 1) throw std::runtime_error("out of ideas");
                             std::this_thread::sleep_for(300ms);
                             const auto start = MpiClock::now();
                             texts[index(comm.rank())] = message_of([&] { comm.synchronize(); });
                             shortest = std::min(shortest, MpiClock::now() - start);
                           }),
               "rank 1: out of ideas");
  if (world_rank() != 1) CHECK(shortest < 100ms);
  worlds.share(texts);
  expect_all(texts, "rank 1: out of ideas");
}

TEST_CASE("mpi: whoever destroys a part has left it") {
  if (world_size() < 2) return;
  MpiWorlds worlds(StreamForm::Inline);
  for (const Rank leaver : {0, 1}) {
    const auto messages = messages_of(worlds, [&](Communicator& comm) {
      auto part = comm.split(comm.rank() / 2, 0);
      if (comm.rank() == leaver) part.reset();
      if (comm.rank() == 1 - leaver) part->synchronize();
      comm.synchronize();
    });
    expect_all(messages, "rank " + std::to_string(leaver) +
                             ": left before collective call 0, in which rank " +
                             std::to_string(1 - leaver) + " waits: synchronize");
  }
}

TEST_CASE("mpi: patience ends a wait, and names who is missing") {
  if (world_size() < 2) return;
  MpiWorlds worlds(StreamForm::Inline, {.patience = 1s});  // enough for the first call
  for (const Rank late : {0, world_size() - 1}) {
    const auto messages = messages_of(worlds, [&](Communicator& comm) {
      comm.synchronize();
      if (comm.rank() == late) std::this_thread::sleep_for(3s);  // rank 0 is given twice as long
      comm.synchronize();
    });
    const std::string begin = "rank " + std::to_string(late) +
                              ": did not come within 1000 ms to collective call 1, in which rank ";
    CHECK(messages[0].substr(0, begin.size()) == begin);
    expect_all(messages, messages[0]);
  }
}

TEST_CASE("mpi: a kernel that throws on one rank fails all") {
  MpiWorlds worlds(StreamForm::Inline);
  if (world_size() < 2) return;
  const auto messages = messages_of(worlds, [](Communicator& comm) {  // sums of integers: none
    std::int32_t x = 0;
    InlineStream stream;
    comm.all_reduce("counts", &x, &x, 1, DType::Int32, DType::Int32, stream);
    stream.synchronize();
  });
  CHECK(messages[0].find("floating-point dtype") != std::string::npos);
  expect_all(messages, messages[0]);
}

TEST_CASE("mpi: an error of a task on one rank's stream reaches ranks that wait in a collective") {
  if (world_size() < 2) return;
  MpiWorlds worlds(StreamForm::Inline);
  expect_all(messages_of(worlds,
                         [](Communicator& comm) {
                           const auto compute = make_host_stream(StreamForm::Threaded);
                           float x = 1;
                           if (comm.rank() == 1)
                             compute->enqueue([] { throw std::runtime_error("kernel failed"); });
                           std::this_thread::sleep_for(2ms);
                           comm.all_reduce("x", &x, &x, 1, DType::Float32, DType::Float32,
                                           *compute);
                           compute->synchronize();
                         }),
             "rank 1: kernel failed");
}
