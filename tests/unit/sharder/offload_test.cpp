// Offload moves memory and no bit: every place of parameters and optimizer against none.
#include "offload_checks.hpp"

#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include "random.hpp"

using namespace sharder_test;

TEST_CASE("offload: one hash over places, strategies, W * K == 4 and stream forms") {
  for (const int world : {1, 2, 4})
    for (const StrategyName strategy : all_strategies)
      for (const OffloadTraits& offload : offloads)
        for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
          Training training = clipped(strategy, world, 4 / world);
          training.host.form = form;
          training.threaded_compute = form == StreamForm::Threaded && world == 2;
          check_same(training, offload, hash_at_four());
        }
}

TEST_CASE("offload: the same bits in every precision, at every reduce moment") {
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy :
         {StrategyName::ShardOptimizer, StrategyName::FullShard, StrategyName::HybridShard})
      for (const ReduceMoment moment :
           {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary}) {
        const bool replicas = strategy == StrategyName::HybridShard;
        if (moment == ReduceMoment::ReplicaBoundary && !replicas) continue;
        Training training = clipped(strategy, replicas ? 4 : 2, 2);
        training.precision = precision;
        training.steps = 2;
        training.options.reduce_moment = moment;
        training.options.accumulation =
            moment == ReduceMoment::Micro ? Accumulation::Running : Accumulation::Tree;
        check_all(training);
      }
}

TEST_CASE("offload: one micro-step reduces at once and has the same bits") {
  for (const PrecisionName precision :
       {PrecisionName::Fp32, PrecisionName::Fp64, PrecisionName::Bf16Mixed,
        PrecisionName::DeepSpeedBf16, PrecisionName::Fp16})
    for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::ShardOptimizer})
      for (const int world : {1, 2}) {
        Training training = clipped(strategy, world, 1);
        training.precision = precision;
        check_all(training);
      }
}

TEST_CASE("offload: steps that are skipped move nothing, also where copies are staged") {
  for (const PrecisionName precision : {PrecisionName::Fp16Torch, PrecisionName::Fp16DeepSpeed})
    for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard}) {
      Training training = clipped(strategy, 2, 1);
      training.precision = precision;
      training.steps = 12;
      training.options.loss_scale = scale_settings(precision, 0x1p24);
      const Trained expected = train(training);
      bool skipped = false, applied = false;
      for (const StepReport& report : expected.reports) {
        skipped = skipped || report.skipped;
        applied = applied || !report.skipped;
      }
      CHECK(skipped);
      CHECK(applied);
      for (const Elements part : {Elements{0}, Elements{7}}) {
        training.options.update_part = part;
        for (const OffloadTraits& offload : offloads)
          check_same(training, offload, expected.hash());
      }
    }
}

TEST_CASE("offload: a model without elements, first or alone, is staged and stepped") {
  for (const bool alone : {true, false}) {
    HostDevice device;
    Solo communicator(device);
    Model model;
    Module nothing = model.module("nothing"), something = model.module("something");
    nothing.add("weight", {0});
    const Parameter weight = something.add("weight", {alone ? 0 : 3});
    Sharder<strategy::FullShard, precision::Bf16Mixed,
            offload::Place<offload::Device, offload::Cpu>>
        trainer(communicator, model, SGD{.lr = 1});
    trainer.initialize(init::constant{1});
    trainer.backward(something, [&](auto, auto gradients) {
      auto* gradient = gradients[weight].data();
      for (Elements i = 0; !alone && i < 3; ++i) gradient[i] = from_float<Bf16>(0.5f);
    });
    trainer.step();
    trainer.synchronize();
    const LocalShard local = trainer.local(weight);
    CHECK(local.count == (alone ? 0 : 3));
    for (Elements i = 0; i < local.count; ++i)
      CHECK(reinterpret_cast<const float*>(local.master)[i] == 0.5f);
  }
}

TEST_CASE("offload: a shard says of which dtype its gradient is") {
  for (const int micro_steps : {1, 2}) {
    Training training = clipped(StrategyName::FullShard, 1, micro_steps);
    training.precision = PrecisionName::DeepSpeedBf16;
    training.options.offload = optimizer_on_host;
    training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
      trainer.engine().synchronize();
      const TestModel test;
      const LocalShard local = trainer.engine().local(test.weights[0].index);
      CHECK(local.gradient_dtype == (micro_steps == 1 ? DType::BFloat16 : DType::Float32));
    };
    train(training);
  }
}

TEST_CASE("offload: modules that are not updated when unused keep their values") {
  const std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};  // without the last block
  for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::FullShard})
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training = clipped(strategy, 2, 1);
      training.precision = precision;
      training.steps = 4;
      training.model.skip_when_unused = true;
      training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                      Elements micro_batch) {
        if (step % 2 == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
        run_micro_step(trainer, test, step, micro_batch);
      };
      check_all(training);
    }
}

TEST_CASE("offload: one hash at random options") {
  auto random = flatshard_test::generator(31);
  const auto pick = [&](const auto& list) { return list[random() % list.size()]; };
  for (int trial = 0; trial < 60; ++trial) {
    const int world = pick(std::array{1, 2, 4});
    const StrategyName strategy = pick(all_strategies);
    Training training = clipped(strategy, world, 4 / world);
    if (has_groups(strategy)) training.options.shard_group = pick(std::array{1, world});
    training.options.reduce_moment = pick(std::array{ReduceMoment::Micro, ReduceMoment::Boundary});
    training.options.wrap = pick(std::vector<WrapPolicy>{wrap::each_module(), wrap::all_in_one(),
                                                         wrap::up_to(100), wrap::by_prefix({"h"})});
    training.options.prefetch_forward = pick(std::array{0, 1, 2, 3});
    training.options.prefetch_backward =
        pick(std::array{BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None});
    training.options.persistence_threshold = pick(std::array<Elements, 3>{0, 5, 80});
    training.options.max_micro_steps = pick(std::array{4, 7});
    training.options.pinned_budget = pick(std::array<Bytes, 3>{0, 5000, unlimited_bytes});
    training.options.update_part = pick(std::array<Elements, 4>{0, 1, 10, 50});
    training.host.form = pick(std::array{StreamForm::Inline, StreamForm::Threaded});
    training.threaded_compute = random() % 4 == 0;
    training.host.threads = pick(std::array{1, 2});
    check_same(training, pick(offloads), hash_at_four());
  }
}

TEST_CASE("offload: the policy's type says the same as the option") {
  using Offloaded = Sharder<strategy::FullShard, precision::Full<float>,
                            offload::Place<offload::Device, offload::Cpu>>;
  using Resident = Sharder<strategy::FullShard, precision::Full<float>, offload::None>;
  const TestModel test;
  Options options;
  options.groups = {{}, {}};
  const Plan by_type = Offloaded::plan_for(test.model, AdamW{}, 2, options);
  CHECK(by_type.request.offload == optimizer_on_host);
  CHECK(by_type.arena_bytes > 0);
  CHECK_FALSE(Resident::plan_for(test.model, AdamW{}, 2, options) == by_type);
  Options chosen = options;
  chosen.offload = optimizer_on_host;
  CHECK(Resident::plan_for(test.model, AdamW{}, 2, chosen) == by_type);
  ThreadWorld(2).run([&](Communicator& communicator) {
    Options mine = options;
    HostDevice device;
    mine.device = &device;
    Offloaded sharder(communicator, test.model, AdamW{}, mine);
    CHECK(sharder.plan() == by_type);
    sharder.initialize(init::normal{0.5, 1});
    const std::uint64_t hash = params_hash(sharder);
    mine.offload = optimizer_on_host;
    Resident by_option(communicator, test.model, AdamW{}, mine);
    CHECK(by_option.plan() == by_type);
    by_option.initialize(init::normal{0.5, 1});
    CHECK(params_hash(by_option) == hash);
    mine.offload = parameters_on_host;
    Offloaded other(communicator, test.model, AdamW{}, mine);
    CHECK(other.plan().request.offload == parameters_on_host);
    other.initialize(init::normal{0.5, 1});
    CHECK(params_hash(other) == hash);
  });
}

TEST_CASE("offload: assigned and summoned values, evaluation, a discarded step") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training = clipped(strategy, 2, 1);
      training.precision = precision;
      training.hooks.before_step = [](Trainer& trainer, Communicator& communicator, int step) {
        const TestModel test;
        Engine& engine = trainer.engine();
        std::vector<float> table(37 * 5);
        for (std::size_t i = 0; i < table.size(); ++i)
          table[i] = static_cast<float>(i) / 64 + static_cast<float>(step);
        if (step == 0) engine.assign(test.table.index, table.data(), DType::Float32);
        if (step == 1)
          engine.assign_from(1, test.table.index, communicator.rank() == 1 ? table.data() : nullptr,
                             DType::Float32);
        trainer.summon_full(
            test.blocks[0],
            [&](const Views& views) {
              const Values weights = views.weights(test.weights[0]);
              for (Elements i = 0; i < weights.count; ++i) weights.set(i, weights.get(i) * 0.5);
            },
            step != 1);
        const std::vector<float> frozen{1, 2, 3, 4, static_cast<float>(step)};
        engine.assign(test.frozen.index, frozen.data(), DType::Float32);
        trainer.evaluate(test.blocks[2], [&](const Views& views) {
          CHECK(views.weights(test.frozen).get(4) == step);
        });
        run_micro_step(trainer, test, 100, communicator.rank());
        trainer.discard_step();
        trainer.evaluate(test.embedding, [&](const Views& views) {
          if (step < 2) CHECK(views.weights(test.table).get(64) == 1 + step);
        });
      };
      check_all(training);
    }
}

TEST_CASE("offload: a new Sharder elsewhere goes on where the old one stands") {
  for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard})
    for (const OffloadTraits& before : {none, all_on_host, optimizer_on_host, parameters_on_host}) {
      CAPTURE(name_of(strategy));
      CAPTURE(to_string(before));
      const auto step = [](Trainer& trainer, const TestModel& test, std::int64_t number) {
        run_micro_step(trainer, test, number, trainer.rank());
        trainer.step();
      };
      ThreadWorld(2).run([&](Communicator& communicator) {
        const TestModel test;
        HostDevice device;
        Options options;
        options.device = &device;
        options.groups = {{}, {}};
        options.max_grad_norm = 1;
        options.offload = before;
        const auto make = [&] {
          return make_trainer(strategy, PrecisionName::Bf16Mixed, communicator, test.model,
                              AdamW{.lr = 1e-2}, options);
        };
        const auto old = make();
        old->initialize(init::normal{0.5, 1});
        for (int number = 0; number < 2; ++number) step(*old, test, number);
        for (const OffloadTraits& after :
             {none, all_on_host, optimizer_on_host, parameters_on_host}) {
          options.offload = after;
          const auto next = make();
          carry_over(old->engine(), next->engine());
          CHECK(params_hash(next->engine()) == params_hash(old->engine()));
          if (after != parameters_on_host) continue;
          step(*next, test, 2);
          step(*old, test, 2);
          CHECK(params_hash(next->engine()) == params_hash(old->engine()));
        }
      });
    }
}
