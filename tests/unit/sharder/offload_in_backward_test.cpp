// Steps in backward with offload, and what passes in parts: the bits of no offload.
#include "offload_checks.hpp"

#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include "random.hpp"

using namespace sharder_test;

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
