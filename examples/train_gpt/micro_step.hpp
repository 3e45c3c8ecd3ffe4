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
  { trainer.loss_scale() } -> std::same_as<const float*>;  // where the model's device reads it
};

/// Forward and backward of one micro-batch. The root is used twice each way: at both ends.
template <LendsParameters Trainer, class Model>
void forward_and_backward(Trainer& trainer, Model& model, const typename Model::Batch& batch) {
  const std::int64_t layers = model.shape().layers;
  trainer.forward_root([&](const auto& weights) { model.embed_forward(weights, batch); });
  for (std::int64_t layer = 0; layer < layers; ++layer)
    trainer.forward_block(layer, [&](const auto& weights) { model.block_forward(layer, weights); });
  trainer.forward_root(
      [&](const auto& weights) { model.head_forward(weights, batch, trainer.loss_scale()); });
  trainer.backward_root(
      [&](const auto& weights, const auto& gradients) { model.head_backward(weights, gradients); });
  for (std::int64_t layer = layers; layer-- > 0;)
    trainer.backward_block(layer, [&](const auto& weights, const auto& gradients) {
      model.block_backward(layer, weights, gradients);
    });
  trainer.backward_root(
      [&](const auto&, const auto& gradients) { model.embed_backward(gradients, batch); });
}

/// The same on the host; returns the mean loss.
template <LendsParameters Trainer>
double run_micro_step(Trainer& trainer, Model<typename Trainer::Compute>& model,
                      const std::int32_t* tokens, const std::int32_t* targets) {
  forward_and_backward(trainer, model, {tokens, targets});
  return model.loss();
}

}  // namespace train_gpt
