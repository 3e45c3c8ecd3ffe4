// Offload moves memory and no bit: every place of parameters and optimizer against none.
#include "offload.hpp"

#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <atomic>

#include "random.hpp"

using namespace sharder_test;

namespace {

Trained trained_at(Training training, const OffloadTraits& offload) {
  training.options.offload = offload;
  return train(training);
}

/// Equal to the same training without offload, in every bit of masters, states, norms.
void check_same(const Training& training, const OffloadTraits& offload, std::uint64_t expected) {
  CAPTURE(to_string(training));
  CAPTURE(to_string(offload));
  const Trained trained = trained_at(training, offload);
  CHECK(trained.replicas_agree);
  CHECK(trained.hash() == expected);
}

/// Also when what is longer than a few elements passes in parts.
void check_all(Training training) {
  const std::uint64_t expected = train(training).hash();
  for (const OffloadTraits& offload : offloads) check_same(training, offload, expected);
  training.options.update_part = 9;
  for (const OffloadTraits& offload : offloads) check_same(training, offload, expected);
}

std::uint64_t hash_at_four() {
  static const std::uint64_t hash = train(clipped(StrategyName::NoShard, 1, 4)).hash();
  return hash;
}

}  // namespace

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

TEST_CASE("offload: what a discarded step in backward has updated is the same") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
      for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
        Training training = clipped(strategy, 2, 1);
        training.precision = precision;
        training.options.max_grad_norm = 0;
        training.options.step_in_backward = true;
        training.host.form = form;
        training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                       Elements micro_batch) {
          run_micro_step(trainer, test, step, micro_batch);
          if (step == 1) trainer.engine().discard_step();
        };
        check_all(training);
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

TEST_CASE("offload: a step in backward, over strategies") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training = clipped(strategy, 2, 2);
      training.precision = precision;
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      training.host.form = StreamForm::Threaded;
      check_all(training);
    }
}

TEST_CASE("offload: a step in backward, with gradients that pass to the host in parts") {
  auto random = flatshard_test::generator(53);
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy : all_strategies) {
      if (scales_loss(precision)) continue;
      Training training = clipped(strategy, std::array{1, 2, 4}[random() % 3], 1);
      training.precision = precision;
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      training.host.form = random() % 2 == 0 ? StreamForm::Threaded : StreamForm::Inline;
      training.options.update_part = std::array<Elements, 4>{1, 3, 16, 100}[random() % 4];
      check_all(training);
    }
}

TEST_CASE("offload: what passes in parts is in the Plan, and of units that train one flat") {
  const TestModel test;
  const auto plan_of = [&](Elements part, bool in_backward) {
    using Offloaded = Sharder<strategy::FullShard, precision::Bf16Mixed,
                              offload::Place<offload::Device, offload::Cpu>>;
    Options options;
    options.groups = {{}, {}};
    options.step_in_backward = in_backward;
    options.update_part = part;
    return Offloaded::plan_for(test.model, AdamW{}, 1, options);
  };
  const Plan whole = plan_of(0, true), parts = plan_of(16, true), after = plan_of(16, false);
  CHECK(whole.relay_slots == 0);
  CHECK(whole.upload_slots == 0);
  CHECK(after.relay_slots == 0);
  CHECK(parts.relay_slots == 4);
  CHECK(parts.relay_slot_bytes == 16 * 4);
  for (const Plan* cut : {&parts, &after}) {
    CHECK(cut->upload_slots == 4);
    CHECK(cut->upload_slot_bytes == 16 * 2);
    CHECK(cut->staging_slot_bytes < whole.staging_slot_bytes);
  }
  CHECK(parts.pinned_bytes - after.pinned_bytes == 4 * 128);
  int relayed = 0;
  for (const Flat& flat : parts.flats) {
    relayed += flat.relayed;
    if (flat.relayed) CHECK(flat.partition.slice() > 16);
  }
  CHECK(relayed > 1);
  CHECK(contains(message_of([&] { plan_of(-1, true); }), "update_part is -1"));
}

TEST_CASE("offload: a step in backward leaves the units that are gathered ahead alone") {
  using Chain = Sharder<strategy::ShardOptimizer, precision::Full<float>>;
  Model model;
  std::vector<Module> modules;
  std::vector<Parameter> weights;
  for (int index = 0; index < 6; ++index) {
    modules.push_back(model.module("h." + std::to_string(index)));
    weights.push_back(modules.back().add("weight", {64}));
  }
  const auto hash_at = [&](const OffloadTraits& offload) {
    std::uint64_t hash = 0;
    ThreadWorld(2).run([&](Communicator& communicator) {
      HostDevice device;
      Options options;
      options.device = &device;
      options.offload = offload;
      options.step_in_backward = true;
      Chain chain(communicator, model, SGD{.lr = 0.1}, options);
      chain.initialize(init::normal{1, 3});
      for (int step = 0; step < 2; ++step) {
        for (int index = 5; index >= 0; --index) {
          const auto at = static_cast<std::size_t>(index);
          chain.backward(modules[at], [&](auto values, auto gradients) {
            for (Elements i = 0; i < 64; ++i)
              gradients[weights[at]][i] = values[weights[at]][i] + static_cast<float>(index);
          });
        }
        chain.step();
      }
      const std::uint64_t found = params_hash(chain);
      if (communicator.rank() == 0) hash = found;
    });
    return hash;
  };
  for (const OffloadTraits& offload : offloads) CHECK(hash_at(offload) == hash_at(none));
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
  const TestModel test;
  Options options;
  options.groups = {{}, {}};
  const Plan by_type = Offloaded::plan_for(test.model, AdamW{}, 2, options);
  CHECK(by_type.request.offload == optimizer_on_host);
  CHECK(by_type.arena_bytes > 0);
  ThreadWorld(2).run([&](Communicator& communicator) {
    Options mine = options;
    HostDevice device;
    mine.device = &device;
    Offloaded sharder(communicator, test.model, AdamW{}, mine);
    CHECK(sharder.plan() == by_type);
    sharder.initialize(init::normal{0.5, 1});
    const std::uint64_t hash = params_hash(sharder);
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

TEST_CASE("offload: what cannot be done is refused before anything is allocated") {
  const auto refused = [](auto&& device, Options options) {
    std::string message;
    ThreadWorld(1).run([&](Communicator& communicator) {
      options.device = &device;
      options.groups = {{}, {}};
      message = message_of([&] {
        make_trainer(StrategyName::FullShard, PrecisionName::Fp32, communicator, TestModel().model,
                     AdamW{}, options);
      });
    });
    CHECK(device.memory().allocations() == 0);
    return message;
  };
  for (const OffloadTraits& offload : offloads) {
    CHECK(contains(refused(HostDevice(), {.capturable = true, .offload = offload}), "capturable"));
    CHECK(contains(refused(HostDevice(), {.offload = offload, .pinned_budget = -1}),
                   "pinned_budget is -1"));
  }
  for (const OffloadTraits& offload : nvme_offloads)
    CHECK(contains(refused(HostDevice(), {.offload = offload}), "Options::nvme.folder"));
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

TEST_CASE("offload: bytes fall on the device and rise on the host as the Plan says, to the byte") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
      for (const int world : {1, 4}) {
        Training training = clipped(strategy, world, 2);
        training.precision = precision;
        Bytes host = 0, pinned = 0, pageable = 0;
        training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
          if (communicator.rank() != 0) return;
          host = trainer.engine().device().host_memory().high_water();
          pinned = trainer.plan().pinned_bytes;
          pageable = trainer.plan().pageable_bytes;
        };
        const Trained before = trained_at(training, none);
        CHECK(pinned == 0);
        const Bytes beside = host;  // reports
        for (const OffloadTraits& offload : offloads) {
          CAPTURE(to_string(training));
          CAPTURE(to_string(offload));
          const Trained after = trained_at(training, offload);
          CHECK(after.high_water == after.arena_bytes);
          CHECK(host == beside + pinned);
          CHECK(pinned > 0);
          CHECK(pageable == 0);
        }
        const Trained all = trained_at(training, all_on_host);
        CHECK(all.arena_bytes < before.arena_bytes);
      }
}

TEST_CASE("offload: a budget makes the rest pageable, and says so once on each rank") {
  Training training = clipped(StrategyName::FullShard, 2, 2);
  const Trained expected = train(training);
  std::atomic<int> warnings{0};
  Bytes host = 0, beside = 0, pageable = 0;
  training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
    if (communicator.rank() != 0) return;
    host = trainer.engine().device().host_memory().high_water();
    pageable = trainer.plan().pageable_bytes;
  };
  train(training);
  beside = host;
  training.options.offload = all_on_host;
  training.options.on_warning = [&](std::string_view message) {
    ++warnings;
    CHECK(contains(std::string(message), "pageable"));
  };
  for (const Bytes budget : {Bytes{0}, Bytes{1000}, Bytes{5000}}) {
    warnings = 0;
    training.options.pinned_budget = budget;
    const Trained trained = train(training);
    CHECK(trained.hash() == expected.hash());
    CHECK(host - beside <= budget);
    CHECK(pageable > 0);
    CHECK(warnings == 2);
  }
  warnings = 0;
  training.options.pinned_budget = unlimited_bytes;
  CHECK(train(training).hash() == expected.hash());
  CHECK(warnings == 0);
}
