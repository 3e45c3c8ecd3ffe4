#pragma once

#include <flatshard/sharder/sharder.hpp>

#include <memory>
#include <vector>

#include "function_ref.hpp"
#include "micro_step.hpp"
#include "options.hpp"

namespace train_gpt {

/// What a Sharder is made from, the same on every rank.
struct Setup {
  flatshard::Model model;
  std::vector<flatshard::Module> modules;                   // root, then the blocks
  std::vector<std::vector<flatshard::Parameter>> handles;   // of each module's parameters
  std::vector<std::vector<flatshard::Initializer>> starts;  // of each parameter
  flatshard::Optimizer optimizer;
  flatshard::Options options;
};

std::unique_ptr<const Setup> make_setup(const Options& options);

/// A Sharder whose strategy is not known at compile time: what run_micro_step and the training loop
/// need of it. One virtual call per module use.
template <class ComputeType>
class Trainer {
 public:
  using Compute = ComputeType;
  using Weights = const Compute* const*;
  using Gradients = Compute* const*;
  using Use = FunctionRef<void(Weights, Gradients)>;

  virtual ~Trainer() = default;

  virtual void initialize() = 0;
  virtual void micro_step(bool last) = 0;
  virtual std::int64_t micro_batch(int index, int count) const = 0;
  /// Where the device reads the loss scale of this step.
  virtual const float* loss_scale() const = 0;
  virtual flatshard::PendingReport step() = 0;
  /// Forgets the micro-steps since the last step.
  virtual void discard_step() = 0;
  virtual std::uint64_t params_hash() = 0;
  virtual const flatshard::Plan& plan() const = 0;
  virtual flatshard::Engine& engine() = 0;

  template <class Function>
  void forward_root(Function use) {
    forward<RootTensors<const Compute>>(0, use);
  }
  template <class Function>
  void forward_block(std::int64_t layer, Function use) {
    forward<BlockTensors<const Compute>>(block(layer), use);
  }
  template <class Function>
  void backward_root(Function use) {
    backward<RootTensors<const Compute>, RootTensors<Compute>>(0, use);
  }
  template <class Function>
  void backward_block(std::int64_t layer, Function use) {
    backward<BlockTensors<const Compute>, BlockTensors<Compute>>(block(layer), use);
  }

 private:
  virtual void forward(std::size_t module, Use use) = 0;
  virtual void backward(std::size_t module, Use use) = 0;

  static std::size_t block(std::int64_t layer) { return static_cast<std::size_t>(layer) + 1; }
  template <class Tensors, class Pointer>
  static Tensors tensors(Pointer pointers) {
    Tensors result;
    for (std::size_t i = 0; i < result.pointer.size(); ++i) result.pointer[i] = pointers[i];
    return result;
  }
  template <class WeightTensors, class Function>
  void forward(std::size_t module, const Function& function) {
    const auto use = [&](Weights weights, Gradients) { function(tensors<WeightTensors>(weights)); };
    forward(module, Use(use));
  }
  template <class WeightTensors, class GradientTensors, class Function>
  void backward(std::size_t module, const Function& function) {
    const auto use = [&](Weights weights, Gradients gradients) {
      function(tensors<WeightTensors>(weights), tensors<GradientTensors>(gradients));
    };
    backward(module, Use(use));
  }
};

/// A choice of policies: how to make its trainer, and its Plan without one. The model's kernels run
/// on `compute`; null: where the device does.
template <class Compute>
struct TrainerType {
  std::unique_ptr<Trainer<Compute>> (*make)(flatshard::Communicator&, const Setup&,
                                            flatshard::Device&, flatshard::Stream* compute);
  flatshard::Plan (*plan)(const Setup&, int ranks);
};

/// The Sharder for a strategy under `Precision`; instantiated in one file per precision.
template <class Precision>
TrainerType<typename Precision::compute> trainer_type(Strategy strategy);

}  // namespace train_gpt
