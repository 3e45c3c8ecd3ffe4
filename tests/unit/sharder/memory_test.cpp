// Memory: what the Plan says is what is allocated, and nothing is allocated in steady steps.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <atomic>
#include <string>

#include "allocation_count.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

Training training_of(StrategyName strategy, PrecisionName precision, int world, int micro_steps) {
  Training training;
  training.strategy = strategy;
  training.precision = precision;
  training.world = world;
  training.micro_steps = micro_steps;
  return training;
}

/// Calls of operator new, and of the devices' allocators, in all ranks' steps [from, to).
struct Allocations {
  std::int64_t news = 0;
  std::int64_t blocks = 0;
};
Allocations allocations_in(Training training, int from, int to) {
  Allocations seen;
  std::atomic<std::int64_t> blocks{0};
  training.steps = to;
  const auto together = [&](Trainer& trainer, Communicator& communicator, auto&& act) {
    trainer.engine().synchronize();
    communicator.synchronize();
    act();
    communicator.synchronize();
  };
  training.hooks.before_step = [&](Trainer& trainer, Communicator& communicator, int step) {
    if (step != from) return;
    together(trainer, communicator, [&] {
      blocks -= trainer.engine().device().memory().allocations();
      if (communicator.rank() == 0) seen.news = -flatshard_test::allocations();
    });
  };
  training.hooks.after_step = [&](Trainer& trainer, Communicator& communicator, int step) {
    if (step + 1 != to) return;
    together(trainer, communicator, [&] {
      blocks += trainer.engine().device().memory().allocations();
      if (communicator.rank() == 0) seen.news += flatshard_test::allocations();
    });
  };
  train(training);
  seen.blocks = blocks;
  return seen;
}

/// The message of the UsageError that constructing throws; the device must stay untouched.
std::string refusal(StrategyName strategy, PrecisionName precision, int world, Options options,
                    const Optimizer& optimizer = AdamW{}) {
  std::string message = "nothing was refused";
  ThreadWorld(world).run([&](Communicator& communicator) {
    const TestModel test;
    HostDevice device;
    Options mine = options;
    mine.groups = {{}, {}};
    mine.device = &device;
    try {
      make_trainer(strategy, precision, communicator, test.model, optimizer, mine);
    } catch (const UsageError& error) {
      if (communicator.rank() == 0) message = error.what();
    }
    CHECK(device.memory().allocations() == 0);
  });
  return message;
}

}  // namespace

TEST_CASE("the allocator's high-water mark is the Plan's arena, to the byte") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : all_precisions)
      for (const int world : {1, 3, 4}) {
        Training training = training_of(strategy, precision, world, 2);
        training.steps = 2;
        CAPTURE(to_string(training));
        const Trained trained = train(training);
        CHECK(trained.high_water == trained.arena_bytes);
      }
  for (const Accumulation accumulation : {Accumulation::Running, Accumulation::Tree})
    for (const ReduceMoment moment :
         {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary}) {
      Training training = training_of(StrategyName::HybridShard, PrecisionName::Bf16Mixed, 4, 5);
      training.options.accumulation = accumulation;
      training.options.reduce_moment = moment;
      const Trained trained = train(training);
      CHECK(trained.high_water == trained.arena_bytes);
    }
}

TEST_CASE("steady steps allocate nothing") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
    for (const StrategyName strategy : all_strategies) {
      Training training = training_of(strategy, PrecisionName::Fp32, 4, 2);
      training.host.form = form;
      training.options.max_grad_norm = 1;
      CAPTURE(to_string(training));
      const Allocations seen = allocations_in(training, 5, 8);
      CHECK(seen.news == 0);
      CHECK(seen.blocks == 0);
    }
    for (const PrecisionName precision : all_precisions) {
      Training training = training_of(StrategyName::HybridShard, precision, 4, 3);
      training.host.form = form;
      training.options.accumulation = Accumulation::Tree;
      training.options.reduce_moment = ReduceMoment::ReplicaBoundary;
      CAPTURE(to_string(training));
      CHECK(allocations_in(training, 5, 8).news == 0);
    }
    Training training = training_of(StrategyName::FullShard, PrecisionName::Fp32, 2, 1);
    training.host.form = form;
    training.threaded_compute = true;
    training.host.threads = 2;
    training.options.step_in_backward = true;
    CHECK(allocations_in(training, 5, 8).news == 0);
  }
}

TEST_CASE("the counter counts") {
  Training training = training_of(StrategyName::FullShard, PrecisionName::Fp32, 2, 1);
  training.hooks.step_options = [](int) {
    ::operator delete(::operator new(4));  // a new-expression may be optimised away
    return StepOptions{};
  };
  CHECK(allocations_in(training, 1, 2).news >= 2);
}

TEST_CASE("gathered elements stay within the cap, which changes what is prefetched") {
  Training training = training_of(StrategyName::FullShard, PrecisionName::Fp32, 2, 2);
  training.options.prefetch_forward = 2;
  const Elements uncapped = train(training).peak_gathered;
  for (const Elements cap : {uncapped, uncapped - 1, uncapped - 100}) {
    training.options.max_live_elements = cap;
    const Elements peak = train(training).peak_gathered;
    CHECK(peak > 0);
    CHECK(peak <= cap);
  }
}

TEST_CASE("a cap below what must be held is refused with both numbers, nothing allocated") {
  for (const StrategyName strategy : {StrategyName::FullShard, StrategyName::ShardGradOp}) {
    Elements least = 0;
    Training training = training_of(strategy, PrecisionName::Fp32, 2, 1);
    training.hooks.before_training = [&](Trainer& trainer, Communicator& communicator) {
      if (communicator.rank() != 0) return;
      Elements kept = 0, largest = 0;
      for (const UnitPlan& unit : trainer.plan().units)
        if (unit.ring_bytes > 0)
          largest = std::max(largest, unit.gathered_elements);
        else
          kept += unit.gathered_elements;
      least = kept + largest;
    };
    train(training);
    REQUIRE(least > 0);
    const std::string message =
        refusal(strategy, PrecisionName::Fp32, 2, {.max_live_elements = least - 1});
    CHECK(contains(message, std::to_string(least)));
    CHECK(contains(message, std::to_string(least - 1)));
    training.hooks = {};
    training.options.max_live_elements = least;
    CHECK(train(training).peak_gathered == least);
  }
}

TEST_CASE("what cannot be done is refused before anything is allocated") {
  const auto message = [](Options options, PrecisionName precision = PrecisionName::Fp32) {
    return refusal(StrategyName::FullShard, precision, 2, std::move(options));
  };
  CHECK(contains(message({.max_grad_norm = 1, .step_in_backward = true}), "clipping"));
  CHECK(contains(message({.on_nonfinite = OnNonFinite::Skip, .step_in_backward = true}),
                 "on_nonfinite"));
  CHECK(contains(message({.step_in_backward = true}, PrecisionName::Fp16Torch), "loss scaling"));
  CHECK(contains(message({.max_grad_norm = -1}), "max_grad_norm"));
  CHECK(contains(message({.max_micro_steps = 0}), "max_micro_steps"));
  CHECK(contains(message({.prefetch_forward = -1}), "prefetch_forward"));
  CHECK(contains(message({.reduce_moment = ReduceMoment::ReplicaBoundary}), "ReplicaBoundary"));
  CHECK(contains(message({.loss_scale = LossScaler::torch().settings}), "loss_scale"));
  CHECK(
      contains(message({.loss_scale = LossScaler::deepspeed().settings}, PrecisionName::Fp16Torch),
               "loss_scale"));
  CHECK(contains(message({.loss_scale = LossScaler::torch(-1).settings}, PrecisionName::Fp16Torch),
                 "initial"));
  CHECK(contains(refusal(StrategyName::HybridShard, PrecisionName::Fp32, 2, {.shard_group = 3}),
                 "shard_group 3"));
}

TEST_CASE("summon_full allocates the whole units, and frees them") {
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy, PrecisionName::Bf16Mixed, 4, 1);
    training.hooks.after_training = [](Trainer& trainer, Communicator&) {
      const TestModel test;
      MemoryResource& memory = trainer.engine().device().memory();
      const Plan& plan = trainer.plan();
      for (const Module& module : test.calls) {
        Bytes whole = 0;
        for (const int unit : plan.units_of_call[static_cast<std::size_t>(module.index())])
          for (const int flat : plan.units[static_cast<std::size_t>(unit)].flats) {
            const Flat& summoned = plan.flats[static_cast<std::size_t>(flat)];
            whole += summoned.partition.padded() * size_of(summoned.master);
          }
        trainer.summon_full(
            module, [&](const Views&) { CHECK(memory.allocated() == plan.arena_bytes + whole); });
        CHECK(memory.allocated() == plan.arena_bytes);
      }
    };
    train(training);
  }
}
