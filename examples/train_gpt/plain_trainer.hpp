#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "micro_step.hpp"
#include "shape.hpp"

namespace train_gpt {

struct PlainAdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1;
  double max_grad_norm = 1.0;
};

/// The model's parameters, gradients and AdamW states in plain fp32 arrays, one process, one
/// thread: what a sharded trainer at one rank is compared with. AdamW as in PyTorch's single-tensor
/// form.
class PlainTrainer {
 public:
  using Compute = float;

  PlainTrainer(const ModelShape& shape, const PlainAdamW& optimizer, std::uint64_t seed);

  template <class Use>
  void forward_root(Use use) {
    use(tensors<RootTensors<const float>>(weights_.data(), 0));
  }
  template <class Use>
  void forward_block(std::int64_t layer, Use use) {
    use(tensors<BlockTensors<const float>>(weights_.data(), block(layer)));
  }
  template <class Use>
  void backward_root(Use use) {
    use(tensors<RootTensors<const float>>(weights_.data(), 0),
        tensors<RootTensors<float>>(gradients_.data(), 0));
  }
  template <class Use>
  void backward_block(std::int64_t layer, Use use) {
    use(tensors<BlockTensors<const float>>(weights_.data(), block(layer)),
        tensors<BlockTensors<float>>(gradients_.data(), block(layer)));
  }
  const float* loss_scale() const {
    static constexpr float one = 1.0f;
    return &one;
  }

  /// Takes the parameters of another trainer of the same shape.
  template <class Other>
  void start_from(Other& other) {
    other.forward_root([&](const auto& tensors) { copy(0, tensors); });
    for (std::size_t module = 1; module < first_.size(); ++module)
      other.forward_block(static_cast<std::int64_t>(module) - 1,
                          [&](const auto& tensors) { copy(module, tensors); });
  }

  /// Clips to the maximal norm and updates; returns the norm before clipping.
  double step();

  std::vector<float>& gradients() { return gradients_; }
  const std::vector<float>& weights() const { return weights_; }

 private:
  struct Extent {
    std::size_t begin, count;
    bool decays;
  };
  std::size_t tensors_of(std::size_t module) const {
    return (module + 1 < first_.size() ? first_[module + 1] : extents_.size()) - first_[module];
  }
  static std::size_t block(std::int64_t layer) { return static_cast<std::size_t>(layer) + 1; }

  template <class Tensors, class T>
  Tensors tensors(T* base, std::size_t module) const {
    Tensors out;
    for (std::size_t i = 0; i < tensors_of(module); ++i)
      out.pointer[i] = base + extents_[first_[module] + i].begin;
    return out;
  }
  template <class Tensors>
  void copy(std::size_t module, const Tensors& tensors) {
    for (std::size_t i = 0; i < tensors_of(module); ++i) {
      const Extent& extent = extents_[first_[module] + i];
      std::memcpy(weights_.data() + extent.begin, tensors.pointer[i], extent.count * sizeof(float));
    }
  }
  void initialize(const ParameterSpec& parameter, std::size_t begin, std::mt19937_64& random);
  void update(const Extent& extent, float coefficient);

  PlainAdamW optimizer_;
  std::vector<std::size_t> first_;  // first extent of each module
  std::vector<Extent> extents_;
  std::vector<float> weights_, gradients_, momentum_, variance_;
  std::int64_t steps_ = 0;
};

inline PlainTrainer::PlainTrainer(const ModelShape& shape, const PlainAdamW& optimizer,
                                  std::uint64_t seed)
    : optimizer_{optimizer} {
  std::mt19937_64 random{seed};
  for (const ModuleSpec& module : model_modules(shape)) {
    first_.push_back(extents_.size());
    for (const ParameterSpec& parameter : module.parameters) {
      const std::size_t begin = weights_.size();
      const auto count = static_cast<std::size_t>(parameter.numel());
      extents_.push_back({begin, count, parameter.decays});
      weights_.resize(begin + (count + 31) / 32 * 32);
      initialize(parameter, begin, random);
    }
  }
  for (std::vector<float>* state : {&gradients_, &momentum_, &variance_})
    state->resize(weights_.size());
}

inline void PlainTrainer::initialize(const ParameterSpec& parameter, std::size_t begin,
                                     std::mt19937_64& random) {
  std::normal_distribution<double> normal{0.0, 1.0};
  for (std::size_t i = 0; i < static_cast<std::size_t>(parameter.numel()); ++i)
    weights_[begin + i] = static_cast<float>(
        parameter.start == Start::normal ? parameter.value * normal(random) : parameter.value);
}

inline double PlainTrainer::step() {
  ++steps_;
  double lanes[8] = {};
  for (std::size_t i = 0; i < gradients_.size(); i += 8)  // sizes are multiples of 32
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const double g = static_cast<double>(gradients_[i + lane]);
      lanes[lane] += g * g;
    }
  double square = 0;
  for (const double lane : lanes) square += lane;
  const double norm = std::sqrt(square);
  const double coefficient = std::fmin(1.0, optimizer_.max_grad_norm / (norm + 1e-6));
  for (const Extent& extent : extents_) update(extent, static_cast<float>(coefficient));
  return norm;
}

inline void PlainTrainer::update(const Extent& extent, float coefficient) {
  const auto t = static_cast<double>(steps_);
  const auto beta1 = static_cast<float>(optimizer_.beta1),
             beta2 = static_cast<float>(optimizer_.beta2);
  const auto eps = static_cast<float>(optimizer_.eps);
  const auto keep =
      static_cast<float>(1 - optimizer_.lr * (extent.decays ? optimizer_.weight_decay : 0.0));
  const auto size = static_cast<float>(optimizer_.lr / (1 - std::pow(optimizer_.beta1, t)));
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(optimizer_.beta2, t)));
  float* __restrict p = weights_.data() + extent.begin;
  float* __restrict m = momentum_.data() + extent.begin;
  float* __restrict v = variance_.data() + extent.begin;
  const float* __restrict gradient = gradients_.data() + extent.begin;
  for (std::size_t i = 0; i < extent.count; ++i) {
    const float g = gradient[i] * coefficient;
    m[i] += (g - m[i]) * (1 - beta1);
    v[i] = v[i] * beta2 + g * g * (1 - beta2);
    p[i] = p[i] * keep - size * m[i] / (std::sqrt(v[i]) * root + eps);
  }
}

}  // namespace train_gpt
