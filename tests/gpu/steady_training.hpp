// Training on a GPU whose gradients are its weights, for tests that count calls.
#pragma once

#include <flatshard/core/device.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <memory>

#include "training.hpp"

namespace sharder_test {

struct SteadyTraining {
  SteadyTraining(StrategyName strategy, PrecisionName precision, Communicator& comm,
                 Device& on_device, const OffloadTraits& offload = {})
      : device(on_device),
        trainer(make_trainer(strategy, precision, comm, test.model, AdamW{}, options(offload))) {
    trainer->initialize(init::normal{0.5, 1});
  }

  static Options options(const OffloadTraits& offload) {
    Options options;
    options.offload = offload;
    options.max_grad_norm = 1;
    options.groups.resize(2);
    return options;
  }

  Engine& engine() { return trainer->engine(); }

  void step() {
    for (const Module& module : test.calls) trainer->forward(module, [](const Views&) {});
    for (auto module = test.calls.rbegin(); module != test.calls.rend(); ++module)
      trainer->backward(*module, [&](const Views& views) { add_gradients(*module, views); });
    trainer->step();
  }

  Device& device;
  const TestModel test;
  const std::unique_ptr<Trainer> trainer;

 private:
  void add_gradients(const Module& module, const Views& views) {
    for (const Parameter parameter : test.parameters_of(module)) {
      if (parameter == test.frozen) continue;
      const Values weights = views.weights(parameter);
      const Values gradients = views.gradients(parameter);
      device.kernels().add(weights.data, weights.dtype, gradients.data, gradients.dtype,
                           weights.count, engine().compute_stream());
    }
  }
};

}  // namespace sharder_test
