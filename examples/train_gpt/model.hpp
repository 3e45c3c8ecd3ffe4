#pragma once

#include <cstdint>
#include <vector>

#include "compute_type.hpp"
#include "kernels/kernels.hpp"
#include "shape.hpp"
#include "workspace.hpp"

namespace train_gpt {

/// The tokens of a micro-batch and what follows each, both (sequences, context).
struct TokenBatch {
  const std::int32_t *tokens, *targets;
};

/// Forward and backward of the transformer for one rank's micro-batch of `sequences` sequences, as
/// one function per module use, to be called in this order:
///   embed_forward, block_forward(0 .. L-1), head_forward,
///   head_backward, block_backward(L-1 .. 0), embed_backward.
/// Weights and gradients are of type Compute, everything else is RealOf<Compute>. Every backward
/// overwrites the gradients it is given; those of the root are complete after embed_backward.
/// One thread at a time; nothing is allocated after construction.
template <class Compute>
class Model {
 public:
  using Real = RealOf<Compute>;
  using Batch = TokenBatch;
  using BlockWeights = BlockTensors<const Compute>;
  using BlockGradients = BlockTensors<Compute>;
  using RootWeights = RootTensors<const Compute>;
  using RootGradients = RootTensors<Compute>;

  Model(const ModelShape& shape, std::int64_t sequences,
        flatshard::InstructionSet set = flatshard::best_instruction_set());

  void embed_forward(const RootWeights& weights, const TokenBatch& batch);
  void block_forward(std::int64_t layer, const BlockWeights& weights);
  /// The gradient that starts the backward pass is that of *gradient_scale times the loss.
  void head_forward(const RootWeights& weights, const TokenBatch& batch,
                    const float* gradient_scale);
  /// The mean of -log p(target) over the last micro-batch.
  double loss() const { return loss_; }

  /// Writes the gradients of ln_f and of the head; of a tied one it keeps the part in wte's.
  void head_backward(const RootWeights& weights, const RootGradients& gradients);
  void block_backward(std::int64_t layer, const BlockWeights& weights,
                      const BlockGradients& gradients);
  /// Writes the gradients of wte (both uses) and wpe.
  void embed_backward(const RootGradients& gradients, const TokenBatch& batch);

  const ModelShape& shape() const { return shape_; }
  std::int64_t sequences() const { return sequences_; }

 private:
  using Activations = BlockActivations<Real>;
  using Weights = BlockTensors<const Real>;
  using Gradients = BlockTensors<Real>;

  std::int64_t rows() const { return sequences_ * shape_.context; }
  Real* residual_after(std::int64_t layer) const;

  /// out (rows, outputs) = x (rows, inputs) * weight (outputs, inputs)^T + bias.
  void linear_forward(Real* out, const Real* x, const Real* weight, const Real* bias,
                      std::int64_t inputs, std::int64_t outputs);
  /// dx = dout * weight, dweight = dout^T * x, dbias = column sums of dout.
  void linear_backward(Real* dx, Real* dweight, Real* dbias, const Real* dout, const Real* x,
                       const Real* weight, std::int64_t inputs, std::int64_t outputs);
  void attention_forward(const Activations& a);
  void attention_backward(const Activations& a, Real* dqkv, const Real* dout);
  void mlp_backward(const Activations& a, const Weights& w, const Gradients& g);

  /// The module's weights as Real: themselves, or widened copies in the workspace.
  template <class Tensors>
  auto widened(const Tensors& weights, std::size_t module) const;
  /// Where to compute a module's gradients: in place, or in the workspace until `store`.
  template <class Tensors>
  auto real_gradients(const Tensors& gradients, std::size_t module) const;
  void store(Compute* out, const Real* in, std::int64_t count) const;

  ModelShape shape_;
  std::int64_t sequences_;
  double loss_ = 0;
  std::vector<std::vector<std::int64_t>> numel_;  // of each parameter of root and of a block
  const Kernels<Real>* kernels_;
  Workspace<Real> workspace_;
};

extern template class Model<float>;
extern template class Model<double>;
extern template class Model<flatshard::Bf16>;
extern template class Model<flatshard::Half>;

}  // namespace train_gpt
