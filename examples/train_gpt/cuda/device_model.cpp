#include "cuda/device_model.hpp"

#include <algorithm>

namespace train_gpt::gpu {

template <class Compute>
DeviceModel<Compute>::DeviceModel(const ModelShape& shape, std::int64_t sequences,
                                  flatshard::CudaDevice& device, flatshard::Stream& compute)
    : shape_{(check_attention({sequences, shape.context, shape.heads, shape.head_width()}), shape)},
      sequences_{sequences},
      stream_{static_cast<StreamHandle>(flatshard::cuda_stream(compute))},
      matmul_{device.memory(), stream_},
      workspace_{shape, sequences, device.memory()} {}

template <class Compute>
Compute* DeviceModel<Compute>::residual_after(std::int64_t layer) const {
  return layer + 1 < shape_.layers ? workspace_.block(layer + 1).input
                                   : workspace_.shared().final_input;
}

template <class Compute>
void DeviceModel<Compute>::embed_forward(const RootWeights& w, const DeviceBatch& batch) {
  gpu::embed_forward(residual_after(-1), w[RootTensor::wte], w[RootTensor::wpe], batch.tokens,
                     rows(), shape_.context, shape_.width, stream_);
}

template <class Compute>
void DeviceModel<Compute>::block_forward(std::int64_t layer, const BlockWeights& w) {
  using enum BlockTensor;
  const Activations& a = workspace_.block(layer);
  const std::int64_t c = shape_.width, n = rows();
  layernorm_forward(a.ln_1, a.ln_1_mean, a.ln_1_rstd, a.input, w[ln_1_weight], w[ln_1_bias], n, c,
                    stream_);
  matmul_.forward(a.qkv, a.ln_1, w[attn_weight], w[attn_bias], nullptr, n, c, 3 * c);
  attention_forward(a.attention, a.lse, a.qkv, attention(), stream_);
  matmul_.forward(a.middle, a.attention, w[proj_weight], w[proj_bias], a.input, n, c, c);
  mlp_forward(a, w, residual_after(layer));
}

template <class Compute>
void DeviceModel<Compute>::mlp_forward(const Activations& a, const BlockWeights& w, Compute* out) {
  using enum BlockTensor;
  const std::int64_t c = shape_.width, n = rows();
  layernorm_forward(a.ln_2, a.ln_2_mean, a.ln_2_rstd, a.middle, w[ln_2_weight], w[ln_2_bias], n, c,
                    stream_);
  if (!matmul_.forward_gelu(a.gelu, a.fc, a.ln_2, w[fc_weight], w[fc_bias], n, c, 4 * c)) {
    matmul_.forward(a.fc, a.ln_2, w[fc_weight], w[fc_bias], nullptr, n, c, 4 * c);
    gelu_forward(a.gelu, a.fc, n * 4 * c, stream_);
  }
  matmul_.forward(out, a.gelu, w[fc_proj_weight], w[fc_proj_bias], a.middle, n, 4 * c, c);
}

template <class Compute>
void DeviceModel<Compute>::head_forward(const RootWeights& w, const DeviceBatch& batch,
                                        const float* loss_scale) {
  const Shared<Compute>& s = workspace_.shared();
  layernorm_forward(s.ln_f, s.ln_f_mean, s.ln_f_rstd, s.final_input, w[RootTensor::ln_f_weight],
                    w[RootTensor::ln_f_bias], rows(), shape_.width, stream_);
  targets_ = batch.targets;
  loss_scale_ = loss_scale;
}

template <class Compute>
void DeviceModel<Compute>::head_backward(const RootWeights& w, const RootGradients& g) {
  using enum RootTensor;
  const Shared<Compute>& s = workspace_.shared();
  const std::int64_t c = shape_.width, v = shape_.vocabulary;
  for (std::int64_t at = 0; at < rows(); at += workspace_.chunk()) {
    const std::int64_t n = std::min(workspace_.chunk(), rows() - at);
    const Compute* const x = s.ln_f + at * c;
    matmul_.forward(s.logits, x, head_of(w), nullptr, nullptr, n, c, v);
    cross_entropy(s.logits, s.losses + at, targets_ + at, loss_scale_, rows(), n, v, stream_);
    matmul_.input_gradient(s.narrow + at * c, s.logits, head_of(w), n, c, v);
    if (s.dhead != nullptr)
      matmul_.weight_gradient(s.dhead, at > 0, s.logits, x, n, c, v);
    else
      matmul_.weight_gradient(g[head], false, s.logits, x, n, c, v);
  }
  if (shape_.untied_head && s.dhead != nullptr) round_to(g[head], s.dhead, v * c, stream_);
  if (loss_ != nullptr) add_mean_loss(loss_, s.losses, rows(), parts_, stream_);
  norm_backward(g[ln_f_weight], g[ln_f_bias], false, s.final_input, s.ln_f_mean, s.ln_f_rstd,
                w[ln_f_weight]);
}

template <class Compute>
void DeviceModel<Compute>::linear_backward(Compute* dx, Compute* dweight, Compute* dbias,
                                           const Compute* dout, const Compute* x,
                                           const Compute* weight, std::int64_t inputs,
                                           std::int64_t outputs) {
  matmul_.input_gradient(dx, dout, weight, rows(), inputs, outputs);
  matmul_.weight_gradient(dweight, false, dout, x, rows(), inputs, outputs);
  if (dbias != nullptr)
    column_sum(dbias, dout, rows(), outputs, workspace_.shared().scratch, stream_);
}

template <class Compute>
void DeviceModel<Compute>::norm_backward(Compute* dweight, Compute* dbias, bool accumulate,
                                         const Compute* x, const float* mean, const float* rstd,
                                         const Compute* weight) {
  const Shared<Compute>& s = workspace_.shared();
  layernorm_weight_gradients(dweight, dbias, s.narrow, x, mean, rstd, rows(), shape_.width,
                             s.scratch, stream_);
  layernorm_backward(s.gradient, accumulate, s.narrow, x, mean, rstd, weight, rows(), shape_.width,
                     stream_);
}

/// gradient (R, C) of the block's output becomes that of `middle`.
template <class Compute>
void DeviceModel<Compute>::mlp_backward(const Activations& a, const BlockWeights& w,
                                        const BlockGradients& g) {
  using enum BlockTensor;
  const Shared<Compute>& s = workspace_.shared();
  const std::int64_t c = shape_.width;
  linear_backward(s.wide, g[fc_proj_weight], g[fc_proj_bias], s.gradient, a.gelu, w[fc_proj_weight],
                  4 * c, c);
  gelu_backward(s.wide, g[fc_bias], s.wide, a.fc, rows(), 4 * c, s.scratch, stream_);
  linear_backward(s.narrow, g[fc_weight], nullptr, s.wide, a.ln_2, w[fc_weight], c, 4 * c);
  norm_backward(g[ln_2_weight], g[ln_2_bias], true, a.middle, a.ln_2_mean, a.ln_2_rstd,
                w[ln_2_weight]);
}

template <class Compute>
void DeviceModel<Compute>::block_backward(std::int64_t layer, const BlockWeights& w,
                                          const BlockGradients& g) {
  using enum BlockTensor;
  const Activations& a = workspace_.block(layer);
  const Shared<Compute>& s = workspace_.shared();
  const std::int64_t c = shape_.width;
  mlp_backward(a, w, g);
  linear_backward(s.narrow, g[proj_weight], g[proj_bias], s.gradient, a.attention, w[proj_weight],
                  c, c);
  attention_backward(s.wide, s.delta, s.narrow, a.qkv, a.attention, a.lse, attention(), stream_);
  linear_backward(s.narrow, g[attn_weight], g[attn_bias], s.wide, a.ln_1, w[attn_weight], c, 3 * c);
  norm_backward(g[ln_1_weight], g[ln_1_bias], true, a.input, a.ln_1_mean, a.ln_1_rstd,
                w[ln_1_weight]);
}

template <class Compute>
void DeviceModel<Compute>::embed_backward(const RootGradients& g, const DeviceBatch& batch) {
  const Shared<Compute>& s = workspace_.shared();
  const float* const of_head = shape_.untied_head ? nullptr : s.dhead;
  embed_backward_tokens(g[RootTensor::wte], of_head, s.gradient, batch.order, batch.begin,
                        shape_.vocabulary, shape_.width, stream_);
  embed_backward_positions(g[RootTensor::wpe], s.gradient, sequences_, shape_.context, shape_.width,
                           stream_);
}

template class DeviceModel<float>;
template class DeviceModel<flatshard::Bf16>;
template class DeviceModel<flatshard::Half>;

double flops_per_token(const ModelShape& s) {
  const double c = static_cast<double>(s.width), layers = static_cast<double>(s.layers);
  const double multiplied = 12 * layers * c * c + static_cast<double>(s.vocabulary) * c;
  return 6 * multiplied + 6 * layers * static_cast<double>(s.context) * c;
}

}  // namespace train_gpt::gpu
