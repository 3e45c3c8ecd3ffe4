// A tiny model with pseudo-gradients that depend on every weight, trained by any Sharder.
#pragma once

#include <flatshard/comm/threads.hpp>
#include <flatshard/ops/host_device.hpp>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer.hpp"

namespace sharder_test {

/// A storage tied over the first and the last module, a module used twice, a frozen parameter, a
/// 0-dim one, one without elements, one of another dtype, two hyper-parameter groups.
struct ModelChoice {
  bool skip_when_unused = false;     // the last block
  bool backward_overwrites = false;  // the first and the last block
};
struct TestModel {
  explicit TestModel(const ModelChoice& choice = {});

  ModelChoice choice;

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

/// One call of a micro-step: its position in TestModel::calls, and what forward leaves to backward.
struct Batch {
  std::int64_t step = 0;
  Elements micro_batch = 0;
  std::array<double, 8>* activations = nullptr;  // of one rank and micro-step, by call
  int call = 0;
};
/// What backward does with one parameter, at once: for inline compute streams. One that promised to
/// overwrite does not read what was there.
void add_gradient(const Batch& batch, const Values& weights, const Values& gradients, int parameter,
                  const float* scale = nullptr, bool overwrite = false);
void add_gradient(const Batch& batch, const Views& views, Parameter parameter);
void run_forward(Trainer& trainer, const TestModel& test, Batch batch);
void run_backward(Trainer& trainer, const TestModel& test, Batch batch);
/// Forward and backward through these calls, in these orders.
void run_calls(Trainer& trainer, const TestModel& test, std::int64_t step, Elements micro_batch,
               std::span<const int> forward, std::span<const int> backward);
/// Forward through all calls and backward in reverse.
void run_micro_step(Trainer& trainer, const TestModel& test, std::int64_t step,
                    Elements micro_batch);

/// What happens in a training, for tests that step in.
struct Hooks {
  std::function<void(Trainer&, Communicator&)> before_training, after_training;
  std::function<void(Trainer&, Communicator&, int step)> before_step, after_step;
  std::function<StepOptions(int step)> step_options;
  std::function<int(int step)> micro_steps;  // of this step; none: Training::micro_steps
  /// In place of run_micro_step.
  std::function<void(Trainer&, const TestModel&, std::int64_t step, Elements micro_batch)>
      micro_step;
  /// A device for one rank, in place of a HostDevice.
  std::function<std::unique_ptr<Device>(const HostOptions&, Rank)> device;
  /// In place of a ThreadWorld.
  std::function<void(int world, const std::function<void(Communicator&)>&)> run;
  bool take_device = false;  // the communicator's, in place of a HostDevice
  /// Wraps each rank's communicator.
  std::function<std::unique_ptr<Communicator>(Communicator&)> decorate;
};

/// Of the rule of a precision that scales the loss, starting at `initial`; else none.
std::optional<ScaleSettings> scale_settings(PrecisionName precision, double initial = 256);

struct Training {
  StrategyName strategy = StrategyName::FullShard;
  PrecisionName precision = PrecisionName::Fp32;
  int world = 1;
  int micro_steps = 1;
  int steps = 3;
  ModelChoice model = {};
  Options options = {};  // train() sets max_micro_steps, groups, device; loss_scale if absent
  Optimizer optimizer = AdamW{.lr = 1e-2};
  HostOptions host = {};
  bool threaded_compute = false;  // the user's kernels run on a stream with a thread of its own
  double stddev = 0.5;            // of the initial values
  Hooks hooks = {};
};
/// With clipping and sums in a tree, so that K micro-steps at W / K ranks have the same bits.
Training clipped(StrategyName strategy, int world, int micro_steps);
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

/// With `failures`: per rank, what() of the exception that ended it.
Trained train(const Training& training, std::vector<std::string>* failures = nullptr);
/// Masters and states of all ranks together; every rank calls it with the same `into`.
void collect(Trainer& trainer, const TestModel& test, Communicator& communicator, Trained& into);

/// what() of the flatshard::Error that `act` throws, or "no error".
std::string message_of(const std::function<void()>& act);
bool contains(const std::string& text, const std::string& part);

}  // namespace sharder_test
