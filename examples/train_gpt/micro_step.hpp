#pragma once

#include <concepts>
#include <cstdint>

#include "model.hpp"

namespace train_gpt {

/// What lends a model its weights and takes its gradients: plain arrays, or a sharded trainer. Each
/// function runs the callable given to it on the pointers of one module.
template <class T>
concept LendsParameters = requires(T& trainer, std::int64_t layer) {
  typename T::Compute;
  trainer.forward_root([](const RootTensors<const typename T::Compute>&) {});
  trainer.forward_block(layer, [](const BlockTensors<const typename T::Compute>&) {});
  trainer.backward_block(layer, [](const BlockTensors<const typename T::Compute>&,
                                   const BlockTensors<typename T::Compute>&) {});
  trainer.backward_root([](const RootTensors<const typename T::Compute>&,
                           const RootTensors<typename T::Compute>&) {});
  { trainer.loss_scale() } -> std::convertible_to<float>;
};

/// Forward and backward of one micro-batch; returns its mean loss. The root is used twice each way:
/// the token embedding is also the head.
template <LendsParameters Trainer>
double run_micro_step(Trainer& trainer, Model<typename Trainer::Compute>& model,
                      const std::int32_t* tokens, const std::int32_t* targets) {
  using Real = RealOf<typename Trainer::Compute>;
  const std::int64_t layers = model.shape().layers;
  double loss = 0;
  trainer.forward_root([&](const auto& weights) { model.embed_forward(weights, tokens); });
  for (std::int64_t layer = 0; layer < layers; ++layer)
    trainer.forward_block(layer, [&](const auto& weights) { model.block_forward(layer, weights); });
  trainer.forward_root([&](const auto& weights) {
    loss = model.head_forward(weights, targets, static_cast<Real>(trainer.loss_scale()));
  });
  trainer.backward_root(
      [&](const auto& weights, const auto& gradients) { model.head_backward(weights, gradients); });
  for (std::int64_t layer = layers; layer-- > 0;)
    trainer.backward_block(layer, [&](const auto& weights, const auto& gradients) {
      model.block_backward(layer, weights, gradients);
    });
  trainer.backward_root(
      [&](const auto&, const auto& gradients) { model.embed_backward(gradients, tokens); });
  return loss;
}

}  // namespace train_gpt
