#pragma once

#include <flatshard/flatshard.hpp>

#include <array>

#include "trainer.hpp"

namespace train_gpt {

/// The trainer of one Sharder type.
template <class Strategy, class Precision>
class ShardedTrainer final : public Trainer<typename Precision::compute> {
 public:
  using Sharder = flatshard::Sharder<Strategy, Precision, flatshard::offload::None>;
  using Compute = typename Precision::compute;
  using Use = typename Trainer<Compute>::Use;

  ShardedTrainer(flatshard::Communicator& communicator, const Setup& setup,
                 flatshard::Device& device, flatshard::Stream* compute)
      : setup_(setup),
        sharder_(communicator, setup.model, setup.optimizer,
                 with(setup.options, device, compute, communicator.rank())) {}

  void initialize() override {
    for (std::size_t module = 0; module < setup_.handles.size(); ++module)
      for (std::size_t i = 0; i < setup_.handles[module].size(); ++i)
        sharder_.initialize(setup_.handles[module][i], setup_.starts[module][i]);
  }
  void micro_step(bool last) override { sharder_.micro_step({.last = last}); }
  std::int64_t micro_batch(int index, int count) const override {
    return sharder_.micro_batch(index, count);
  }
  const float* loss_scale() const override { return sharder_.loss_scale().data(); }
  flatshard::PendingReport step() override { return sharder_.step(); }
  void discard_step() override { sharder_.discard_step(); }
  std::uint64_t params_hash() override { return flatshard::params_hash(sharder_); }
  const flatshard::Plan& plan() const override { return sharder_.plan(); }
  flatshard::Engine& engine() override { return sharder_.engine(); }

 private:
  static constexpr std::size_t most_tensors = block_tensor_count;

  static flatshard::Options with(flatshard::Options options, flatshard::Device& device,
                                 flatshard::Stream* compute, flatshard::Rank rank) {
    if (rank != 0) options.on_warning = nullptr;  // the same on every rank
    options.device = &device;
    options.compute_stream = compute;
    return options;
  }
  void forward(std::size_t module, Use use) override {
    sharder_.forward(setup_.modules[module], [&](auto weights) {
      std::array<const Compute*, most_tensors> data{};
      for (std::size_t i = 0; i < setup_.handles[module].size(); ++i)
        data[i] = weights[setup_.handles[module][i]].data();
      use(data.data(), nullptr);
    });
  }
  void backward(std::size_t module, Use use) override {
    sharder_.backward(setup_.modules[module], [&](auto weights, auto gradients) {
      std::array<const Compute*, most_tensors> data{};
      std::array<Compute*, most_tensors> slopes{};
      for (std::size_t i = 0; i < setup_.handles[module].size(); ++i) {
        data[i] = weights[setup_.handles[module][i]].data();
        slopes[i] = gradients[setup_.handles[module][i]].data();
      }
      use(data.data(), slopes.data());
    });
  }

  const Setup& setup_;
  Sharder sharder_;
};

template <class Strategy, class Precision>
constexpr TrainerType<typename Precision::compute> trainer_type_of() {
  using Result = Trainer<typename Precision::compute>;
  using Chosen = ShardedTrainer<Strategy, Precision>;
  return {[](flatshard::Communicator& communicator, const Setup& setup, flatshard::Device& device,
             flatshard::Stream* compute) -> std::unique_ptr<Result> {
            return std::make_unique<Chosen>(communicator, setup, device, compute);
          },
          [](const Setup& setup, int ranks) {
            return Chosen::Sharder::plan_for(setup.model, setup.optimizer, ranks, setup.options);
          }};
}

/// The table from names to types.
template <class Precision>
TrainerType<typename Precision::compute> trainer_type(Strategy strategy) {
  namespace policy = flatshard::strategy;
  switch (strategy) {
    case Strategy::no_shard:
      return trainer_type_of<policy::NoShard, Precision>();
    case Strategy::shard_optimizer:
      return trainer_type_of<policy::ShardOptimizer, Precision>();
    case Strategy::shard_grad_op:
      return trainer_type_of<policy::ShardGradOp, Precision>();
    case Strategy::full_shard:
      return trainer_type_of<policy::FullShard, Precision>();
    case Strategy::hybrid_shard:
      return trainer_type_of<policy::HybridShard, Precision>();
    case Strategy::hybrid_shard_grad_op:
      return trainer_type_of<policy::HybridShardGradOp, Precision>();
    case Strategy::full_shard_secondary:
      break;
  }
  return trainer_type_of<policy::FullShardSecondary, Precision>();
}

}  // namespace train_gpt
