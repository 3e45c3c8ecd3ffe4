#include "model.hpp"

#include <algorithm>
#include <cmath>

namespace train_gpt {
namespace {

constexpr std::size_t root_index = 0, block_index = 1;

/// Number of elements of each parameter of the root and of one block.
std::vector<std::vector<std::int64_t>> parameter_sizes(const ModelShape& shape) {
  std::vector<std::vector<std::int64_t>> sizes;
  ModelShape one = shape;
  one.layers = 1;
  for (const ModuleSpec& module : model_modules(one)) {
    sizes.emplace_back();
    for (const ParameterSpec& parameter : module.parameters)
      sizes.back().push_back(parameter.numel());
  }
  return sizes;
}

}  // namespace

template <class Compute>
Model<Compute>::Model(const ModelShape& shape, std::int64_t sequences,
                      flatshard::InstructionSet set)
    : shape_{shape},
      sequences_{sequences},
      numel_{parameter_sizes(shape)},
      kernels_{&kernels<Real>(set)},
      workspace_{shape, sequences} {}

template <class Compute>
auto Model<Compute>::residual_after(std::int64_t layer) const -> Real* {
  return layer + 1 < shape_.layers ? workspace_.block(layer + 1).input
                                   : workspace_.shared().final_input;
}

template <class Compute>
template <class Tensors>
auto Model<Compute>::widened(const Tensors& weights, std::size_t module) const {
  if constexpr (is_direct<Compute>) {
    return weights;
  } else {
    std::conditional_t<std::is_same_v<Tensors, BlockWeights>, Weights, RootTensors<const Real>> out;
    Real* next = workspace_.shared().weights;
    for (std::size_t i = 0; i < numel_[module].size(); ++i) {
      widen(next, weights.pointer[i], numel_[module][i]);
      out.pointer[i] = next;
      next += Arena<Real>::padded(numel_[module][i]);
    }
    return out;
  }
}

template <class Compute>
template <class Tensors>
auto Model<Compute>::real_gradients(const Tensors& gradients, std::size_t module) const {
  if constexpr (is_direct<Compute>) {
    return gradients;
  } else {
    std::conditional_t<std::is_same_v<Tensors, BlockGradients>, Gradients, RootTensors<Real>> out;
    Real* next = workspace_.shared().gradients;
    for (std::size_t i = 0; i < numel_[module].size(); ++i) {
      out.pointer[i] = next;
      next += Arena<Real>::padded(numel_[module][i]);
    }
    return out;
  }
}

/// From where gradients were computed to where they belong; this is the one rounding of 16-bit
/// ones.
template <class Compute>
void Model<Compute>::store(Compute* out, const Real* in, std::int64_t count) const {
  if constexpr (!is_direct<Compute>)
    narrow(out, in, count);
  else if (out != in)
    std::copy_n(in, count, out);
}

template <class Compute>
void Model<Compute>::linear_forward(Real* out, const Real* x, const Real* weight, const Real* bias,
                                    std::int64_t inputs, std::int64_t outputs) {
  kernels_->gemm({rows(), outputs, inputs, x, inputs, 1, weight, 1, inputs, out, outputs, bias, 0,
                  workspace_.shared().scratch});
}

template <class Compute>
void Model<Compute>::linear_backward(Real* dx, Real* dweight, Real* dbias, const Real* dout,
                                     const Real* x, const Real* weight, std::int64_t inputs,
                                     std::int64_t outputs) {
  Real* scratch = workspace_.shared().scratch;
  kernels_->gemm({rows(), inputs, outputs, dout, outputs, 1, weight, inputs, 1, dx, inputs, nullptr,
                  0, scratch});
  kernels_->gemm({outputs, inputs, rows(), dout, 1, outputs, x, inputs, 1, dweight, inputs, nullptr,
                  0, scratch});
  if (dbias) kernels_->column_sum(dbias, dout, rows(), outputs);
}

template <class Compute>
void Model<Compute>::embed_forward(const RootWeights& weights, const TokenBatch& batch) {
  const RootTensors<const Real> w = widened(weights, root_index);
  const std::int64_t c = shape_.width;
  Real* out = residual_after(-1);
  for (std::int64_t r = 0; r < rows(); ++r)
    kernels_->add(out + r * c, w[RootTensor::wte] + batch.tokens[r] * c,
                  w[RootTensor::wpe] + r % shape_.context * c, c);
}

/// Per sequence and head: scores = Q K^T, probabilities = softmax, out = probabilities V.
template <class Compute>
void Model<Compute>::attention_forward(const Activations& a) {
  const std::int64_t t = shape_.context, c = shape_.width, d = shape_.head_width();
  const Real scale = Real(1) / std::sqrt(Real(d));
  Real* scratch = workspace_.shared().scratch;
  for (std::int64_t s = 0; s < sequences_; ++s)
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      const Real* q = a.qkv + s * t * 3 * c + h * d;
      Real* p = a.probabilities + (s * shape_.heads + h) * t * t;
      Real* out = a.attention + s * t * c + h * d;
      kernels_->gemm({t, t, d, q, 3 * c, 1, q + c, 1, 3 * c, p, t, nullptr, 0, scratch});
      kernels_->causal_softmax_forward(p, scale, t);
      kernels_->gemm({t, d, t, p, t, 1, q + 2 * c, 3 * c, 1, out, c, nullptr, 0, scratch});
    }
}

template <class Compute>
void Model<Compute>::attention_backward(const Activations& a, Real* dqkv, const Real* dout) {
  const std::int64_t t = shape_.context, c = shape_.width, d = shape_.head_width();
  const Real scale = Real(1) / std::sqrt(Real(d));
  Real *scratch = workspace_.shared().scratch, *ds = workspace_.shared().scores;
  for (std::int64_t s = 0; s < sequences_; ++s)
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      const Real *q = a.qkv + s * t * 3 * c + h * d, *k = q + c, *v = k + c;
      const Real* p = a.probabilities + (s * shape_.heads + h) * t * t;
      const Real* dy = dout + s * t * c + h * d;
      Real *dq = dqkv + s * t * 3 * c + h * d, *dk = dq + c, *dv = dk + c;
      kernels_->gemm({t, d, t, p, 1, t, dy, c, 1, dv, 3 * c, nullptr, 0, scratch});
      kernels_->gemm({t, t, d, dy, c, 1, v, 1, 3 * c, ds, t, nullptr, 0, scratch});
      kernels_->causal_softmax_backward(ds, p, scale, t);
      kernels_->gemm({t, d, t, ds, t, 1, k, 3 * c, 1, dq, 3 * c, nullptr, 0, scratch});
      kernels_->gemm({t, d, t, ds, 1, t, q, 3 * c, 1, dk, 3 * c, nullptr, 0, scratch});
    }
}

template <class Compute>
void Model<Compute>::block_forward(std::int64_t layer, const BlockWeights& weights) {
  using enum BlockTensor;
  const Weights w = widened(weights, block_index);
  const Activations& a = workspace_.block(layer);
  const std::int64_t c = shape_.width, n = rows();
  Real* branch = workspace_.shared().narrow;

  kernels_->layernorm_forward(a.ln_1, a.ln_1_mean, a.ln_1_rstd, a.input, w[ln_1_weight],
                              w[ln_1_bias], n, c);
  linear_forward(a.qkv, a.ln_1, w[attn_weight], w[attn_bias], c, 3 * c);
  attention_forward(a);
  linear_forward(branch, a.attention, w[proj_weight], w[proj_bias], c, c);
  kernels_->add(a.middle, a.input, branch, n * c);

  kernels_->layernorm_forward(a.ln_2, a.ln_2_mean, a.ln_2_rstd, a.middle, w[ln_2_weight],
                              w[ln_2_bias], n, c);
  linear_forward(a.fc, a.ln_2, w[fc_weight], w[fc_bias], c, 4 * c);
  kernels_->gelu_forward(a.gelu, a.fc, n * 4 * c);
  linear_forward(branch, a.gelu, w[fc_proj_weight], w[fc_proj_bias], 4 * c, c);
  kernels_->add(residual_after(layer), a.middle, branch, n * c);
}

template <class Compute>
void Model<Compute>::head_forward(const RootWeights& weights, const TokenBatch& batch,
                                  const float* gradient_scale) {
  const RootTensors<const Real> w = widened(weights, root_index);
  const Shared<Real>& s = workspace_.shared();
  const double tokens = static_cast<double>(rows());
  kernels_->layernorm_forward(s.ln_f, s.ln_f_mean, s.ln_f_rstd, s.final_input,
                              w[RootTensor::ln_f_weight], w[RootTensor::ln_f_bias], rows(),
                              shape_.width);
  linear_forward(s.logits, s.ln_f, head_of(w), nullptr, shape_.width, shape_.vocabulary);
  const Real scale = static_cast<Real>(static_cast<double>(*gradient_scale) / tokens);
  loss_ =
      kernels_->cross_entropy(s.logits, batch.targets, scale, rows(), shape_.vocabulary) / tokens;
}

template <class Compute>
void Model<Compute>::head_backward(const RootWeights& weights, const RootGradients& gradients) {
  using enum RootTensor;
  const RootTensors<const Real> w = widened(weights, root_index);
  const RootTensors<Real> g = real_gradients(gradients, root_index);
  const Shared<Real>& s = workspace_.shared();
  const std::int64_t c = shape_.width;
  Real* const dhead = shape_.untied_head ? g[head] : s.dwte;
  linear_backward(s.narrow, dhead, nullptr, s.logits, s.ln_f, head_of(w), c, shape_.vocabulary);
  std::fill_n(s.gradient, rows() * c, Real(0));
  kernels_->layernorm_backward(s.gradient, g[ln_f_weight], g[ln_f_bias], s.narrow, s.final_input,
                               s.ln_f_mean, s.ln_f_rstd, w[ln_f_weight], rows(), c);
  store(gradients[ln_f_weight], g[ln_f_weight], c);
  store(gradients[ln_f_bias], g[ln_f_bias], c);
  if (shape_.untied_head) store(gradients[head], g[head], shape_.vocabulary * c);
}

/// gradient (R, C) of the block's output becomes that of `middle`.
template <class Compute>
void Model<Compute>::mlp_backward(const Activations& a, const Weights& w, const Gradients& g) {
  using enum BlockTensor;
  const Shared<Real>& s = workspace_.shared();
  const std::int64_t c = shape_.width, n = rows();
  linear_backward(s.wide, g[fc_proj_weight], g[fc_proj_bias], s.gradient, a.gelu, w[fc_proj_weight],
                  4 * c, c);
  kernels_->gelu_backward(a.gelu, a.fc, s.wide, n * 4 * c);  // a.gelu is free now: d fc
  linear_backward(s.narrow, g[fc_weight], g[fc_bias], a.gelu, a.ln_2, w[fc_weight], c, 4 * c);
  kernels_->layernorm_backward(s.gradient, g[ln_2_weight], g[ln_2_bias], s.narrow, a.middle,
                               a.ln_2_mean, a.ln_2_rstd, w[ln_2_weight], n, c);
}

template <class Compute>
void Model<Compute>::block_backward(std::int64_t layer, const BlockWeights& weights,
                                    const BlockGradients& gradients) {
  using enum BlockTensor;
  const Weights w = widened(weights, block_index);
  const Gradients g = real_gradients(gradients, block_index);
  const Activations& a = workspace_.block(layer);
  const Shared<Real>& s = workspace_.shared();
  const std::int64_t c = shape_.width, n = rows();

  mlp_backward(a, w, g);
  linear_backward(s.narrow, g[proj_weight], g[proj_bias], s.gradient, a.attention, w[proj_weight],
                  c, c);
  attention_backward(a, s.wide, s.narrow);
  linear_backward(s.narrow, g[attn_weight], g[attn_bias], s.wide, a.ln_1, w[attn_weight], c, 3 * c);
  kernels_->layernorm_backward(s.gradient, g[ln_1_weight], g[ln_1_bias], s.narrow, a.input,
                               a.ln_1_mean, a.ln_1_rstd, w[ln_1_weight], n, c);
  for (std::size_t i = 0; i < block_tensor_count; ++i)
    store(gradients.pointer[i], g.pointer[i], numel_[block_index][i]);
}

template <class Compute>
void Model<Compute>::embed_backward(const RootGradients& gradients, const TokenBatch& batch) {
  using enum RootTensor;
  const RootTensors<Real> g = real_gradients(gradients, root_index);
  const Shared<Real>& s = workspace_.shared();
  const std::int64_t c = shape_.width, t = shape_.context;
  std::fill_n(g[wpe], t * c, Real(0));
  if (shape_.untied_head) std::fill_n(s.dwte, shape_.vocabulary * c, Real(0));
  for (std::int64_t r = 0; r < rows(); ++r) {
    const Real* from = s.gradient + r * c;
    Real* const row = s.dwte + batch.tokens[r] * c;
    kernels_->add(row, row, from, c);
    kernels_->add(g[wpe] + r % t * c, g[wpe] + r % t * c, from, c);
  }
  store(gradients[wte], s.dwte, shape_.vocabulary * c);
  store(gradients[wpe], g[wpe], t * c);
}

template class Model<float>;
template class Model<double>;
template class Model<flatshard::Bf16>;
template class Model<flatshard::Half>;

}  // namespace train_gpt
