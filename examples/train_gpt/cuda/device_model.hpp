#pragma once
// The transformer on a GPU: the same functions per module use as Model's on the host.

#include <flatshard/core/cuda_device.hpp>
#include <flatshard/tensor/dtype.hpp>

#include "cuda/device_batch.hpp"
#include "cuda/device_workspace.hpp"
#include "cuda/matmul.hpp"

namespace train_gpt::gpu {

/// Forward and backward for one rank's micro-batch; call order as train_gpt::Model. Weights,
/// gradients and activations are of type Compute, sums fp32; every call enqueues on the compute
/// stream and returns. Every backward overwrites the gradients it is given; those of the root are
/// complete after embed_backward. One thread at a time, on the current CUDA device; nothing is
/// allocated after the first micro-step.
template <class Compute>
class DeviceModel {
 public:
  using Batch = DeviceBatch;
  using BlockWeights = BlockTensors<const Compute>;
  using BlockGradients = BlockTensors<Compute>;
  using RootWeights = RootTensors<const Compute>;
  using RootGradients = RootTensors<Compute>;

  DeviceModel(const ModelShape& shape, std::int64_t sequences, flatshard::CudaDevice& device,
              flatshard::Stream& compute);

  /// Micro-steps from here on add the mean of -log p(target), divided by `parts`, to *loss.
  void add_losses_to(double* loss, double parts) {
    loss_ = loss;
    parts_ = parts;
  }

  void embed_forward(const RootWeights& weights, const DeviceBatch& batch);
  void block_forward(std::int64_t layer, const BlockWeights& weights);
  /// The logits are formed in backward, a chunk of rows at a time: only a chunk is ever held.
  void head_forward(const RootWeights& weights, const DeviceBatch& batch, const float* loss_scale);

  void head_backward(const RootWeights& weights, const RootGradients& gradients);
  void block_backward(std::int64_t layer, const BlockWeights& weights,
                      const BlockGradients& gradients);
  void embed_backward(const RootGradients& gradients, const DeviceBatch& batch);

  const ModelShape& shape() const { return shape_; }
  std::int64_t sequences() const { return sequences_; }

 private:
  using Activations = BlockActivations<Compute>;

  std::int64_t rows() const { return sequences_ * shape_.context; }
  AttentionShape attention() const {
    return {sequences_, shape_.context, shape_.heads, shape_.head_width()};
  }
  Compute* residual_after(std::int64_t layer) const;
  void mlp_forward(const Activations& a, const BlockWeights& w, Compute* out);
  void mlp_backward(const Activations& a, const BlockWeights& w, const BlockGradients& g);
  void linear_backward(Compute* dx, Compute* dweight, Compute* dbias, const Compute* dout,
                       const Compute* x, const Compute* weight, std::int64_t inputs,
                       std::int64_t outputs);
  /// `accumulate`: onto the gradient of the residual stream, else into it.
  void norm_backward(Compute* dweight, Compute* dbias, bool accumulate, const Compute* x,
                     const float* mean, const float* rstd, const Compute* weight);

  ModelShape shape_;
  std::int64_t sequences_;
  StreamHandle stream_;
  Matmul<Compute> matmul_;
  DeviceWorkspace<Compute> workspace_;
  double* loss_ = nullptr;
  double parts_ = 1;
  const std::int32_t* targets_ = nullptr;  // from head_forward to head_backward
  const float* loss_scale_ = nullptr;
};

extern template class DeviceModel<float>;
extern template class DeviceModel<flatshard::Bf16>;
extern template class DeviceModel<flatshard::Half>;

/// Makes the calling thread launch on this device.
void use_device(const flatshard::CudaDevice& device);

/// Floating-point operations of the matrix products and of causal attention, forward and backward,
/// per token: 6 for every weight that is multiplied, 6 T C a layer (the half of T that is seen).
double flops_per_token(const ModelShape& shape);

/// The device's dense peak in that type, operations per second: the datasheet's, by multiprocessor
/// count; 0 for a device of another kind than A100, H100 and H200, or B200.
double peak_flops(const flatshard::CudaDevice& device, flatshard::DType compute);

}  // namespace train_gpt::gpu
