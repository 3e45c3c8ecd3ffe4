// A device is a value: everything goes through its memory, streams and kernels.
#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>

#include "spy_device.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

constexpr std::array every_step{"zero",      "cast",     "add", "square_sums",
                                "add_nodes", "conclude", "step"};

Training training_of(StrategyName strategy) {
  Training training;
  training.strategy = strategy;
  training.precision = PrecisionName::Bf16Mixed;
  training.world = 4;
  training.micro_steps = 3;
  training.options.max_grad_norm = 1;
  return training;
}

}  // namespace

TEST_CASE("all memory and all kernels are the device's, and a device changes no bit") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
    for (const StrategyName strategy : all_strategies) {
      Training training = training_of(strategy);
      const std::uint64_t plain = train(training).hash();
      training.host.form = form;
      std::vector<SpyDevice*> devices(4);
      training.hooks.device = [&](const HostOptions& options, Rank rank) {
        auto device = std::make_unique<SpyDevice>(options);
        devices[static_cast<std::size_t>(rank)] = device.get();
        return device;
      };
      training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
        SpyDevice& device = *devices[static_cast<std::size_t>(trainer.rank())];
        CHECK(device.calls("fill") > 0);
        CHECK(device.calls("start_control") > 0);
        CHECK(device.calls("stream") == 2);  // gather, reduce; and one to compute on
        CHECK(device.memory().allocations() == 1);
        CHECK(device.memory().allocated() == trainer.plan().arena_bytes);
        device.reset();
      };
      training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
        trainer.engine().synchronize();
        SpyDevice& device = *devices[static_cast<std::size_t>(trainer.rank())];
        for (const char* kernel : every_step) {
          CAPTURE(kernel);
          CHECK(device.calls(kernel) > 0);
        }
        CHECK(device.calls("event") == 0);  // all made at construction
        CHECK(device.memory().allocations() == 1);
      };
      CAPTURE(to_string(training));
      CHECK(train(training).hash() == plain);
    }
}

TEST_CASE("nothing but kernels, the user's functions and wait() touches device memory") {
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy : all_strategies) {
      const TestModel test;
      SpyDevice device;
      Solo solo(device.kernels());
      const auto trainer = make_trainer(strategy, precision, solo, test.model, AdamW{},
                                        {.max_grad_norm = 1,
                                         .max_micro_steps = 2,
                                         .loss_scale = scale_settings(precision),
                                         .groups = {{}, {.lr_factor = 2}},
                                         .device = &device});
      device.guard();
      trainer->initialize(init::normal{1, 1});
      const std::vector<double> table(185, 0.5);
      trainer->engine().assign(test.table.index, table.data(), DType::Float64);
      for (int step = 0; step < 4; ++step) {
        for (int k = 0; k < 2; ++k) {
          trainer->micro_step(k == 1);
          for (const Module& module : test.calls)
            trainer->forward(module, [&](const Views& views) {
              const Access open = device.access();
              for (const Parameter parameter : test.parameters_of(module))
                for (Elements i = 0; i < views.weights(parameter).count; ++i)
                  (void)views.weights(parameter).get(i);
            });
          for (std::size_t call = test.calls.size(); call-- > 0;)
            trainer->backward(test.calls[call], [&](const Views& views) {
              const Access open = device.access();
              for (const Parameter parameter : test.parameters_of(test.calls[call]))
                if (parameter != test.frozen) {
                  const Values gradient = views.gradients(parameter);
                  for (Elements i = 0; i < gradient.count; ++i) gradient.set(i, 1);
                }
            });
        }
        trainer->engine().set_optimizer(AdamW{.lr = 1e-3});
        const auto take = [&] {  // from the third on, step() waits for a report
          if (step < 2) return trainer->step();
          const Access open = device.access();
          return trainer->step();
        };
        const PendingReport pending = take();
        const Access open = device.access();
        CHECK(!pending.wait().skipped);
      }
      (void)trainer->engine().local(test.table.index);
      trainer->evaluate(test.head, [](const Views&) {});
      device.unguard();
    }
}

TEST_CASE("two Sharders on one device, side by side") {
  const TestModel test;
  SpyDevice device;
  Solo solo(device.kernels());
  const Options options{.groups = {{}, {}}, .device = &device};
  const auto one = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, solo, test.model,
                                AdamW{}, options);
  const auto other = make_trainer(StrategyName::NoShard, PrecisionName::Bf16Mixed, solo, test.model,
                                  Lion{}, options);
  CHECK(device.memory().allocated() == one->plan().arena_bytes + other->plan().arena_bytes);
  for (Trainer* trainer : {one.get(), other.get()}) trainer->initialize(init::normal{1, 1});
  run_micro_step(*one, test, 0, 0);
  run_micro_step(*other, test, 0, 0);
  CHECK(one->step().wait().grad_norm > 0);
  CHECK(other->step().wait().grad_norm > 0);
}

TEST_CASE("the arena may come from memory of the user's own") {
  const TestModel test;
  HostDevice device;
  HostMemory mine;
  Solo solo(device.kernels());
  {
    const auto trainer =
        make_trainer(StrategyName::FullShard, PrecisionName::Fp32, solo, test.model, AdamW{},
                     {.groups = {{}, {}}, .device = &device, .memory = &mine});
    CHECK(mine.allocated() == trainer->plan().arena_bytes);
    run_micro_step(*trainer, test, 0, 0);
    CHECK(!trainer->step().wait().skipped);
    trainer->summon_full(test.head, [](const Views&) {});
  }
  CHECK(mine.allocated() == 0);
  CHECK(device.memory().allocations() == 0);
}
