// The optimizer of the trainer that is alone: AdamW on plain arrays.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

/// A parameter, its gradient, and what AdamW keeps.
struct Parameter {
  explicit Parameter(std::vector<float> initial)
      : value(std::move(initial)), gradient(value.size()), m(value.size()), v(value.size()) {}
  std::vector<float> value, gradient, m, v;
};

/// Update number `step`, from 1 on; leaves the gradient zero.
inline void adamw(Parameter& parameter, int step, float lr) {
  constexpr float beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F, weight_decay = 0.01F;
  const float correction1 = 1 - std::pow(beta1, static_cast<float>(step));
  const float correction2 = 1 - std::pow(beta2, static_cast<float>(step));
  for (std::size_t i = 0; i < parameter.value.size(); ++i) {
    float& p = parameter.value[i];
    float& m = parameter.m[i];
    float& v = parameter.v[i];
    const float g = std::exchange(parameter.gradient[i], 0.0F);
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    p -= lr * weight_decay * p;
    p -= lr / correction1 * m / (std::sqrt(v / correction2) + eps);
  }
}
