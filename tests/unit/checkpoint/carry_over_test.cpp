// A new Sharder from an old one: what is carried over is what a checkpoint would have carried.
#include <flatshard/comm/solo.hpp>
#include <flatshard/sharder/carry_over.hpp>

#include <doctest/doctest.h>

#include <algorithm>

#include "checkpointing.hpp"
#include "random.hpp"

namespace sharder_test {
namespace {

/// How a Sharder of the test model is made.
struct Side {
  StrategyName strategy = StrategyName::FullShard;
  PrecisionName precision = PrecisionName::Bf16Mixed;
  Options options = {};
  TestModel test{};
  Optimizer optimizer = AdamW{.lr = 1e-2};
};

std::string to_string(const Side& from, const Side& to, int world) {
  return std::string(name_of(from.strategy)) + " " + std::string(name_of(from.precision)) + " to " +
         std::string(name_of(to.strategy)) + " " + std::string(name_of(to.precision)) + " on " +
         std::to_string(world);
}

std::unique_ptr<Trainer> make(const Side& side, Communicator& communicator, Device& device) {
  Options options = side.options;
  options.device = &device;
  options.groups = {{}, {.lr_factor = 0.5, .weight_decay = false}};
  if (!options.loss_scale) options.loss_scale = scale_settings(side.precision);
  return make_trainer(side.strategy, side.precision, communicator, side.test.model, side.optimizer,
                      options);
}

void steps(Trainer& trainer, const TestModel& test, int from, int to) {
  for (int step = from; step < to; ++step) {
    run_micro_step(trainer, test, step, trainer.micro_batch(0, 1));
    trainer.step().wait();
  }
}

std::span<std::int64_t> mask_of(Trainer& trainer, const TestModel& test) {
  return {reinterpret_cast<std::int64_t*>(trainer.engine().buffer(test.buffer.index)), 3};
}

/// Trains and gives every rank's buffer values.
std::unique_ptr<Trainer> trained(const Side& side, Communicator& communicator, Device& device) {
  auto trainer = make(side, communicator, device);
  trainer->initialize(init::normal{0.5, 1});
  std::fill_n(mask_of(*trainer, side.test).begin(), 3, std::int64_t{7} << 40);
  steps(*trainer, side.test, 0, 2);
  return trainer;
}

/// Frozen flats count steps or not; it means nothing.
TrainingState state_of(Trainer& trainer) {
  TrainingState state = trainer.engine().training_state();
  for (std::size_t flat = 0; flat < state.times.size(); ++flat)
    if (!trainer.plan().flats[flat].requires_grad) state.times[flat] = 0;
  return state;
}

void check_same(Trainer& one, Trainer& other, const TestModel& test, Communicator& communicator) {
  CHECK(state_of(one) == state_of(other));
  for (std::size_t group = 0; group < 2; ++group)
    CHECK(one.engine().group_optimizers()[group].hyper_parameters() ==
          other.engine().group_optimizers()[group].hyper_parameters());
  CHECK(std::ranges::equal(mask_of(one, test), mask_of(other, test)));
  static Trained of_one, of_other;  // shared by the ranks
  collect(one, test, communicator, of_one);
  collect(other, test, communicator, of_other);
  if (communicator.rank() == 0) CHECK(same_state(of_one, of_other));
}

/// The old one's state by way of a checkpoint and without: equal, and equal after more steps.
void check(const Side& from, const Side& to, int world) {
  CAPTURE(to_string(from, to, world));
  const ScratchFolder folder;
  ThreadWorld(world, {.patience = std::chrono::seconds(60)}).run([&](Communicator& communicator) {
    HostDevice device;
    UnsynchronizedFiles files;
    const auto old = trained(from, communicator, device);
    const auto loaded = make(to, communicator, device), carried = make(to, communicator, device);
    carried->initialize(init::normal{3, 9});  // none of it stays
    save_checkpoint(old->engine(), {.folder = folder / "run", .operations = &files});
    load_checkpoint(loaded->engine(), folder / "run", {.allow_downcast = true});
    carry_over(old->engine(), carried->engine(), {.allow_downcast = true, .block_bytes = 4096});
    check_same(*loaded, *carried, to.test, communicator);
    steps(*loaded, to.test, 2, 4);
    steps(*carried, to.test, 2, 4);
    check_same(*loaded, *carried, to.test, communicator);
  });
}

Side side_of(StrategyName strategy, PrecisionName precision) {
  Side side;
  side.strategy = strategy;
  side.precision = precision;
  return side;
}

Side random_side(std::mt19937_64& random) {
  Side side = side_of(all_strategies[random() % all_strategies.size()],
                      all_precisions[random() % all_precisions.size()]);
  const std::array wraps{wrap::each_module(), wrap::all_in_one(), wrap::up_to(60)};
  side.options.wrap = wraps[random() % wraps.size()];
  side.options.persistence_threshold = random() % 2 == 0 ? 0 : 30;
  side.options.seed = random() % 100;
  const auto tier = [&] { return std::array{Tier::Device, Tier::Host, Tier::Nvme}[random() % 3]; };
  static const ScratchFolder nvme;
  side.options.nvme.folder = nvme.path();
  side.options.offload = OffloadTraits{tier(), tier()};
  side.optimizer = AdamW{.lr = 1e-2 / static_cast<double>(1 + random() % 3)};
  return side;
}

TEST_CASE("every strategy takes over from every other as from its checkpoint") {
  for (const StrategyName from : all_strategies)
    for (const StrategyName to : all_strategies)
      check(side_of(from, PrecisionName::Bf16Mixed), side_of(to, PrecisionName::Bf16Mixed), 4);
}

TEST_CASE("every precision takes over from every other as from its checkpoint") {
  for (const PrecisionName from : all_precisions)
    for (const PrecisionName to : all_precisions)
      check(side_of(StrategyName::FullShard, from), side_of(StrategyName::HybridShard, to), 2);
}

TEST_CASE("any Sharder takes over from any other, wrapped and offloaded otherwise, on any world") {
  auto random = flatshard_test::generator(61);
  for (int round = 0; round < 30; ++round) {
    const int world = std::array{1, 2, 3, 4, 8}[random() % 5];
    check(random_side(random), random_side(random), world);
  }
}

TEST_CASE("carrying over at half of a training leaves what the unbroken one leaves") {
  ThreadWorld(4).run([](Communicator& communicator) {
    HostDevice device;
    const Side whole = side_of(StrategyName::FullShard, PrecisionName::Bf16Mixed);
    const Side other = side_of(StrategyName::ShardOptimizer, PrecisionName::Bf16Mixed);
    const auto unbroken = trained(whole, communicator, device);
    const auto old = trained(whole, communicator, device);
    const auto fresh = make(other, communicator, device);
    carry_over(old->engine(), fresh->engine());
    steps(*unbroken, whole.test, 2, 5);
    steps(*fresh, other.test, 2, 5);
    steps(*old, whole.test, 2, 5);  // the old one is as it was
    check_same(*unbroken, *fresh, other.test, communicator);
    check_same(*unbroken, *old, other.test, communicator);
  });
}

TEST_CASE("beside both arenas there is one block") {
  ThreadWorld(2).run([](Communicator& communicator) {
    HostDevice device;
    const Side from = side_of(StrategyName::FullShard, PrecisionName::Fp32);
    const auto old = trained(from, communicator, device);
    const auto fresh =
        make(side_of(StrategyName::NoShard, PrecisionName::Fp64), communicator, device);
    const Bytes before = device.memory().allocated();
    CHECK(before == old->plan().arena_bytes + fresh->plan().arena_bytes);
    carry_over(old->engine(), fresh->engine(), {.block_bytes = 8192});
    CHECK(device.memory().allocated() == before);
    CHECK(device.memory().high_water() == before + 8192);
  });
}

TEST_CASE("parameters only: the rest stays as it is, whatever the optimizer was") {
  ThreadWorld(2).run([](Communicator& communicator) {
    HostDevice device;
    const Side from = side_of(StrategyName::FullShard, PrecisionName::Fp32);
    Side to = side_of(StrategyName::NoShard, PrecisionName::Fp32);
    to.optimizer = SGD{.lr = 1e-2, .momentum = 0.9};
    const auto old = trained(from, communicator, device);
    const auto fresh = make(to, communicator, device);
    CHECK(contains(message_of([&] { carry_over(old->engine(), fresh->engine()); }),
                   "the optimizer was 'adamw' and is 'sgd'"));
    const TrainingState before = fresh->engine().training_state();
    carry_over(old->engine(), fresh->engine(), {.optimizer_state = false});
    CHECK(fresh->engine().training_state() == before);
    static Trained of_old, of_fresh;  // shared by the ranks
    collect(*old, from.test, communicator, of_old);
    collect(*fresh, to.test, communicator, of_fresh);
    if (communicator.rank() == 0) CHECK(of_old.masters == of_fresh.masters);
  });
}

TEST_CASE("what cannot be taken over from is refused, alike on all ranks") {
  ThreadWorld(2).run([](Communicator& communicator) {
    HostDevice device;
    const Side side = side_of(StrategyName::FullShard, PrecisionName::Fp32);
    const auto old = trained(side, communicator, device);
    const auto fresh = make(side, communicator, device);
    const auto refused = [&](Engine& from, Engine& to, const CarryOverOptions& options) {
      return message_of([&] { carry_over(from, to, options); });
    };
    CHECK(contains(refused(old->engine(), old->engine(), {}), "from itself"));
    CHECK(contains(refused(old->engine(), fresh->engine(), {.block_bytes = 100}), "100 bytes"));
    Solo solo(device);
    const auto alone = make(side, solo, device);
    CHECK(contains(refused(old->engine(), alone->engine(), {}), "of 1 cannot take over"));
    run_forward(*old, side.test, {0, 0, std::make_unique<std::array<double, 8>>().get(), 0});
    CHECK(contains(refused(old->engine(), fresh->engine(), {}), "between micro-steps"));
    old->discard_step();
    carry_over(old->engine(), fresh->engine());
    check_same(*old, *fresh, side.test, communicator);
  });
}

}  // namespace
}  // namespace sharder_test
