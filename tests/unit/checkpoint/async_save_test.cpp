#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/comm/decorator.hpp>
#include <flatshard/io/faulty_file_operations.hpp>

#include <doctest/doctest.h>

#include "checkpointing.hpp"

namespace sharder_test {
namespace {

/// A communicator like MPI's: only the thread that trains may use it and its parts.
class OneThread final : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;
  bool any_thread() const override { return false; }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<OneThread>(inner().split(color, key));
  }
};

Training training_of(bool any_thread) {
  Training training;
  training.precision = PrecisionName::Bf16Mixed;
  training.world = 4;
  training.steps = 4;
  if (!any_thread)
    training.hooks.decorate = [](Communicator& communicator) {
      return std::make_unique<OneThread>(communicator);
    };
  return training;
}

/// One rank's saver, as long as the rank trains.
struct Savers {
  explicit Savers(int world) : of(static_cast<std::size_t>(world)) {}
  AsyncSaver& at(Rank rank) { return *of[static_cast<std::size_t>(rank)]; }
  std::vector<std::unique_ptr<AsyncSaver>> of;
};

TEST_CASE("what is saved is the state of the moment of save(), while training goes on") {
  for (const bool any_thread : {true, false}) {
    const ScratchFolder folder;
    Savers savers(4);
    Training training = training_of(any_thread);
    training.hooks.before_training = [&](Trainer& trainer, Communicator& communicator) {
      savers.of[static_cast<std::size_t>(communicator.rank())] =
          std::make_unique<AsyncSaver>(trainer.engine(), SaveOptions{.folder = folder / "run"});
    };
    training.hooks.after_step = [&](Trainer&, Communicator& communicator, int step) {
      savers.at(communicator.rank()).save({{"after", std::to_string(step + 1)}});
    };
    training.hooks.after_training = [&](Trainer&, Communicator& communicator) {
      const auto report = savers.at(communicator.rank()).wait();
      REQUIRE(report);
      CHECK(report->path == folder / "run/step-4");
      CHECK(!savers.at(communicator.rank()).wait());
      savers.of[static_cast<std::size_t>(communicator.rank())].reset();
    };
    train(training);
    for (int step = 1; step <= 4; ++step) {
      Part part;
      part.world = 4;
      part.to = step;
      Part loaded = part;
      loaded.from = step;
      loaded.load = folder / ("run/step-" + std::to_string(step));
      CHECK(same_state(train_part(loaded), train_part(part)));
      CHECK(read_manifest(loaded.load).user[0].second == std::to_string(step));
    }
  }
}

TEST_CASE("the copy is as large as announced: the rank's share, and no more") {
  const ScratchFolder folder;
  Bytes sum = 0;
  for (Rank rank = 0; rank < 4; ++rank) {
    const TestModel test;
    Options options;
    options.groups.resize(2);
    using Type = Sharder<strategy::FullShard, precision::Bf16Mixed>;
    const Plan plan = Type::plan_for(test.model, AdamW{}, 4, options);
    const Bytes share = snapshot_bytes(plan, test.model, AdamW{}, rank);
    CHECK(share <= plan.bytes(Role::Master) + plan.bytes(Role::State) + plan.bytes(Role::Compute) +
                       plan.bytes(Role::RegisteredData));
    sum += share;
  }
  Training training = training_of(true);
  training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
    MemoryResource& memory = trainer.engine().device().host_memory();
    const Bytes before = memory.high_water();
    AsyncSaver saver(trainer.engine(), {.folder = folder / "run"});
    saver.save();
    saver.wait();
    const TestModel test;
    constexpr Bytes to_write_from = Bytes{4} << 20;
    CHECK(memory.high_water() - before ==
          snapshot_bytes(trainer.plan(), test.model, AdamW{}, communicator.rank()) + to_write_from);
  };
  train(training);
  Bytes data = 0;
  for (const FileDigest& file : read_manifest(folder / "run/step-4").files)
    data += file.bytes - file.header_bytes;
  CHECK(sum == data);
}

TEST_CASE("an error of the background surfaces at the next call, alike on all ranks") {
  for (const bool any_thread : {true, false}) {
    const ScratchFolder folder;
    std::vector<std::string> messages(4);
    Training training = training_of(any_thread);
    training.steps = 1;
    training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
      const Rank rank = communicator.rank();
      // Rank 2 opens stage and files first; its writes fail, in the background.
      FaultyFileOperations faulty(posix_file_operations(),
                                  {.operation = rank == 2 ? 9 : 0, .code = 5, .sticky = true});
      AsyncSaver saver(trainer.engine(), {.folder = folder / "run", .operations = &faulty});
      saver.save();
      messages[static_cast<std::size_t>(rank)] = message_of([&] { saver.wait(); });
    };
    train(training);
    CHECK(contains(messages[0], "rank 2: "));
    for (const std::string& message : messages) CHECK(message == messages[0]);
    CHECK(!find_checkpoint(folder / "run"));
  }
}

TEST_CASE("poll() never waits for a disk and reports once") {
  for (const bool any_thread : {true, false}) {
    const ScratchFolder folder;
    Training training = training_of(any_thread);
    training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
      AsyncSaver saver(trainer.engine(), {.folder = folder / "run"});
      CHECK(!saver.poll());
      saver.save();
      std::optional<SaveReport> report;
      while (!report) report = saver.poll();
      CHECK(report->path == folder / "run/step-4");
      CHECK(!saver.poll());
    };
    train(training);
  }
}

TEST_CASE("a saver that goes away leaves no half checkpoint") {
  const ScratchFolder folder;
  Training training = training_of(false);
  training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
    AsyncSaver saver(trainer.engine(), {.folder = folder / "run"});
    saver.save();
  };
  train(training);
  CHECK(!find_checkpoint(folder / "run"));
}

}  // namespace
}  // namespace sharder_test
