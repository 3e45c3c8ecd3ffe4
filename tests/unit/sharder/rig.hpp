// A Sharder over two parameters whose gradients a test sets by hand.
#pragma once

#include "training.hpp"

namespace sharder_test {

/// One parameter of each kind, whose gradients a test sets by hand.
struct Hand {
  Hand()
      : module(model.module("m")),
        weight(module.add("weight", {80, 3})),
        bias(module.add("bias", {2})) {}
  Model model;
  Module module;
  Parameter weight, bias;
};

using Fill = std::function<double(Rank rank, int step, Parameter parameter, Elements element)>;

/// A rank's Sharder over the hand-made model.
struct Rig {
  Rig(Communicator& comm, StrategyName strategy, PrecisionName precision, Options options,
      const Optimizer& optimizer = SGD{.lr = 1})
      : communicator(comm) {
    options.device = &device;
    trainer = make_trainer(strategy, precision, comm, hand.model, optimizer, options);
    trainer->initialize(init::constant{1});
  }
  /// Backward that adds `fill` times the loss scale to every gradient, and the step.
  PendingReport step(int number, const Fill& fill, const StepOptions& options = {}) {
    backward(number, fill);
    return trainer->step(options);
  }
  void backward(int number, const Fill& fill) {
    trainer->backward(hand.module, [&](const Views& views) {
      for (const Parameter parameter : {hand.weight, hand.bias}) {
        const Values gradient = views.gradients(parameter);
        for (Elements i = 0; i < gradient.count; ++i)
          gradient.set(i, fill(communicator.rank(), number, parameter, i) *
                              static_cast<double>(*trainer->loss_scale()));
      }
    });
  }
  /// All state of this rank but the report: masters, states.
  std::vector<std::byte> state() {
    trainer->engine().synchronize();
    std::vector<std::byte> bytes;
    const Plan& plan = trainer->plan();
    for (const Parameter parameter : {hand.weight, hand.bias}) {
      const LocalShard local = trainer->engine().local(parameter.index);
      const Flat& flat = plan.flats[static_cast<std::size_t>(
          plan.flat_of_parameter[static_cast<std::size_t>(parameter.index)])];
      bytes.insert(bytes.end(), local.master, local.master + local.count * size_of(flat.master));
      for (const std::byte* values : local.states)
        bytes.insert(bytes.end(), values, values + local.count * size_of(flat.state));
    }
    return bytes;
  }
  double weight_of(Parameter parameter, Elements element) {
    double value = 0;
    trainer->summon_full(
        hand.module, [&](const Views& views) { value = views.weights(parameter).get(element); });
    return value;
  }

  Communicator& communicator;
  Hand hand;
  HostDevice device;
  std::unique_ptr<Trainer> trainer;
};

inline void on_ranks(int world, const std::function<void(Communicator&)>& act) {
  ThreadWorld(world, {.patience = std::chrono::seconds(60)}).run(act);
}

}  // namespace sharder_test
