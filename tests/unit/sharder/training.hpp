// A tiny model with pseudo-gradients that depend on every weight, trained by any Sharder.
#pragma once

#include <flatshard/comm/threads.hpp>
#include <flatshard/ops/host_device.hpp>

#include <functional>
#include <string>
#include <vector>

#include "trainer.hpp"

namespace sharder_test {

/// A storage tied over the first and the last module, a module used twice, a frozen parameter, a
/// 0-dim one, one without elements, one of another dtype, two hyper-parameter groups.
struct TestModel {
  TestModel();

  Model model;
  Module embedding, head;
  std::vector<Module> blocks;              // the second one is used twice per micro-step
  Parameter table;                         // (37, 5), in embedding and head
  std::vector<Parameter> weights, biases;  // per block; biases are in group 1
  Parameter scalar, empty, frozen, norm;   // in blocks 0, 1, 2, 2; norm is float64
  RegisteredBuffer buffer;

  /// Calls of one micro-step's forward; backward is the reverse.
  std::vector<Module> calls;
  /// What a call of `module` reads and writes.
  const std::vector<Parameter>& parameters_of(const Module& module) const {
    return used[static_cast<std::size_t>(module.index())];
  }
  std::vector<std::vector<Parameter>> used;  // by module
};

/// What a gradient element gets from one use in one micro-batch: `noise` + weight / 8 +
/// activation / 64, times the loss scale.
double noise(std::int64_t step, Elements micro_batch, int parameter, Elements element, int call);
double contribution(double noise, double weight, double activation);
/// What forward keeps of a module's weights.
double activation_of(double earlier, const Values& weights);

/// What happens in a training, for tests that step in.
struct Hooks {
  std::function<void(Trainer&, Communicator&)> before_training, after_training;
  std::function<void(Trainer&, Communicator&, int step)> before_step, after_step;
  std::function<StepOptions(int step)> step_options;
  std::function<int(int step)> micro_steps;  // of this step; none: Training::micro_steps
  /// Wraps each rank's communicator.
  std::function<std::unique_ptr<Communicator>(Communicator&)> decorate;
};

struct Training {
  StrategyName strategy = StrategyName::FullShard;
  PrecisionName precision = PrecisionName::Fp32;
  int world = 1;
  int micro_steps = 1;
  int steps = 3;
  Options options = {};  // max_micro_steps, groups and device are set by train()
  Optimizer optimizer = AdamW{.lr = 1e-2};
  HostOptions host = {};
  bool threaded_compute = false;  // the user's kernels run on a stream with a thread of its own
  double stddev = 0.5;            // of the initial values
  Hooks hooks = {};
};
std::string to_string(const Training& training);

/// State after a training, the same however it was sharded.
struct Trained {
  std::vector<std::vector<std::byte>> masters;              // per parameter
  std::vector<std::vector<std::vector<std::byte>>> states;  // per state, per parameter
  std::vector<StepReport> reports;                          // of the last steps, oldest first
  bool replicas_agree = true;
  Bytes high_water = 0;   // of rank 0's device
  Bytes arena_bytes = 0;  // of the Plan
  Elements peak_gathered = 0;
  std::uint64_t hash() const;
};

Trained train(const Training& training);
/// Runs one micro-step's forward and backward.
void run_micro_step(Trainer& trainer, const TestModel& test, std::int64_t step,
                    Elements micro_batch);
/// Masters and states of all ranks together; every rank calls it with the same `into`.
void collect(Trainer& trainer, const TestModel& test, Communicator& communicator, Trained& into);

}  // namespace sharder_test
