// Whole steps as CUDA graphs.
#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <optional>
#include <stdexcept>

#include "training.hpp"

using namespace sharder_test;

namespace {

/// A step whose gradients are made on the device: g += w.
void device_step(Trainer& trainer, const TestModel& test) {
  Engine& engine = trainer.engine();
  const KernelTable& kernels = engine.device().kernels();
  for (const Module& module : test.calls) trainer.forward(module, [](const Views&) {});
  for (auto module = test.calls.rbegin(); module != test.calls.rend(); ++module)
    trainer.backward(*module, [&](const Views& views) {
      for (const Parameter parameter : test.parameters_of(*module)) {
        if (parameter == test.frozen) continue;
        const Values weights = views.weights(parameter), gradients = views.gradients(parameter);
        kernels.add(weights.data, weights.dtype, gradients.data, gradients.dtype, weights.count,
                    engine.compute_stream());
      }
    });
}

double lr_of(int step) { return 1e-2 / (1 + step); }

/// Trains alone on a GPU; from step 2 on by replays of a captured step, or not.
std::uint64_t trained_hash(StrategyName strategy, PrecisionName precision, bool replays,
                           std::vector<StepReport>& reports) {
  CudaDevice device;
  Solo alone(device);
  const TestModel test;
  Options options;
  options.max_grad_norm = 0.5;
  options.groups = {{}, {.lr_factor = 0.5, .weight_decay = false}};
  options.capturable = true;
  options.loss_scale = scale_settings(precision);
  const auto trainer = make_trainer(strategy, precision, alone, test.model, AdamW{}, options);
  Engine& engine = trainer->engine();
  trainer->initialize(init::normal{0.5, 1});
  std::optional<CudaGraph> graph;
  for (int step = 0; step < 12; ++step) {
    engine.set_optimizer(AdamW{.lr = lr_of(step)});
    if (replays && step == 2)
      graph = engine.capture([&] {
        device_step(*trainer, test);
        trainer->step();
      });
    if (graph && step != 7) {  // one step in between is not from the graph
      reports.push_back(engine.wait(engine.replay(*graph)));
      continue;
    }
    device_step(*trainer, test);
    reports.push_back(trainer->step().wait());
  }
  return params_hash(engine);
}

}  // namespace

TEST_CASE("engine on a GPU: a captured step is replayed with other hyper-parameters") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Fp16Torch}) {
      CAPTURE(std::string(name_of(strategy)));
      std::vector<StepReport> reports, replayed;
      const std::uint64_t expected = trained_hash(strategy, precision, false, reports);
      CHECK(trained_hash(strategy, precision, true, replayed) == expected);
      CHECK(replayed == reports);
    }
}

TEST_CASE("engine on a GPU: what cannot be captured is refused, and training goes on") {
  CudaDevice device;
  Solo alone(device);
  const TestModel test;
  Options options;
  options.groups.resize(2);
  const auto eager = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, alone, test.model,
                                  AdamW{}, options);
  CHECK_THROWS_AS(eager->engine().capture([] {}), UsageError);
  options.capturable = true;
  const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, alone, test.model,
                                    AdamW{}, options);
  CHECK_THROWS_AS(trainer->engine().capture([&] { throw std::runtime_error("no"); }),
                  std::runtime_error);
  device_step(*trainer, test);
  CHECK(trainer->step().wait().step == 1);
}
