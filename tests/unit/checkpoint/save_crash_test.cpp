// The whole save of a Sharder, broken at every one of its file operations.
#include <flatshard/comm/solo.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <doctest/doctest.h>

#include <cstring>

#include "checkpointing.hpp"
#include "crash_enumeration.hpp"

namespace sharder_test {
namespace {

using flatshard_test::CrashReport;
using flatshard_test::CrashScenario;

constexpr const char* folder_name = "/run";

/// Tensors that straddle the ranks, of some blocks that go past the page cache and what is left at
/// their ends, and a small one; with one optimizer state each.
struct SmallRun {
  explicit SmallRun(Communicator& communicator) {
    Module module = model.module("m");
    module.add("w", {70, 61});
    module.add("b", {5});
    Options options;
    options.device = &device;
    trainer = make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed, communicator, model,
                           SGD{.lr = 0.5, .momentum = 0.5}, options);
  }
  /// Bytes of the states of flat 0 on this rank.
  std::span<std::byte> states() {
    const Flat& flat = trainer->plan().flats[0];
    const Bytes bytes = flat.partition.slice() * size_of(flat.state);
    return {trainer->engine().flat_state(0).states[0], static_cast<std::size_t>(bytes)};
  }
  /// Everything as if `step` steps had been made.
  void go_to(std::int64_t step) {
    Engine& engine = trainer->engine();
    trainer->initialize(init::normal{1, static_cast<std::uint64_t>(step)});
    engine.begin_state_write("go_to()");
    for (std::byte& byte : states()) byte = static_cast<std::byte>(step);
    TrainingState state = engine.training_state();
    state.steps = step;
    for (std::int64_t& time : state.times) time = step;
    engine.restore(state);
  }

  Model model;
  HostDevice device;
  std::unique_ptr<Trainer> trainer;
};

bool save_by_all(std::int64_t step, Writers writers, const std::vector<FileOperations*>& disks) {
  std::atomic<int> saved = 0;
  const int ranks = static_cast<int>(disks.size());
  ThreadWorld(ranks, {.patience = std::chrono::seconds(60)}).run([&](Communicator& communicator) {
    SmallRun run(communicator);
    run.go_to(step);
    SaveOptions options;
    options.folder = folder_name;
    options.writers = writers;
    options.max_file_bytes = 17'200;
    options.block_bytes = 8192;
    options.operations = disks[static_cast<std::size_t>(communicator.rank())];
    try {
      save_checkpoint(run.trainer->engine(), options);
      ++saved;
    } catch (const CheckpointError&) {
      // What the test is about: the disk tells the rest.
    }
  });
  return saved == ranks;
}

std::string load(FileOperations& disk) {
  const auto kernels = make_host_kernels({});
  Solo solo(*kernels);
  SmallRun run(solo);
  Engine& engine = run.trainer->engine();
  load_checkpoint(engine, folder_name, {.operations = &disk});
  std::string text = std::to_string(engine.training_state().steps) + ": " +
                     std::to_string(params_hash(engine)) + " ";
  for (const std::byte byte : run.states())
    if (byte != std::byte{0}) text += std::to_string(static_cast<int>(byte));  // padding stays zero
  return text;
}

void check(Writers writers, std::int64_t least) {
  const CrashScenario scenario{
      .ranks = 2,
      .prepare =
          [=](FileOperations& disk) {
            save_by_all(1, writers, {&disk, &disk});
          },
      .save = [=](const auto& disks) { return save_by_all(2, writers, disks); },
      .load = load,
      .save_later =
          [=](FileOperations& disk) {
            if (!save_by_all(3, Writers::EveryRank, {&disk}))
              throw std::runtime_error("the next save fails");
          }};
  const CrashReport report = flatshard_test::enumerate_crashes(scenario, 1);
  MESSAGE(flatshard_test::to_string(report));
  for (const std::string& violation : report.violations) FAIL_CHECK(violation);
  CHECK(report.operations[0] > least);
  CHECK(report.found_old + report.found_new + report.found_later == report.disks);
  CHECK(report.found_old > 0);
  CHECK(report.found_new > 0);
}

TEST_CASE("a Sharder's save broken at any file operation leaves the old or the new checkpoint") {
  check(Writers::EveryRank, 40);
}

TEST_CASE("so does one in which rank 0 writes for all") { check(Writers::RankZero, 40); }

}  // namespace
}  // namespace sharder_test
