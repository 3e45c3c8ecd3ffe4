// The optimizers' formulas in long double, written naively, beside the largest term that was added
// on the way: the measure of the tolerances.
#pragma once

#include <flatshard/ops/adagrad.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/lion.hpp>
#include <flatshard/ops/sgd.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace flatshard_test {

using Wide = long double;  // so that errors of double arithmetic can be told, too

struct Tracked {
  Wide value = 0;
  Wide largest = 0;  // of the magnitudes of all terms that made the value

  void set(Wide first, Wide second) {
    value = first + second;
    largest = std::max({largest, std::fabs(first), std::fabs(second)});
  }
};

/// One element: its parameter and states.
struct ReferenceElement {
  Tracked parameter;
  std::array<Tracked, 2> states;
  bool uncertain = false;  // a sign hung on less than fp32 can tell

  explicit ReferenceElement(Wide start) : parameter{start, std::fabs(start)} {}
};

inline void reference_step(const flatshard::AdamW& adamw, int time, Wide g, ReferenceElement& e) {
  auto& [p, states, uncertain] = e;
  auto& [m, v] = states;
  p.set(p.value, -adamw.lr * adamw.weight_decay * p.value);
  m.set(adamw.beta1 * m.value, (1 - Wide{adamw.beta1}) * g);
  v.set(adamw.beta2 * v.value, (1 - Wide{adamw.beta2}) * g * g);
  const Wide mean = m.value / (1 - std::pow(Wide{adamw.beta1}, time));
  const Wide square = v.value / (1 - std::pow(Wide{adamw.beta2}, time));
  p.set(p.value, -adamw.lr * mean / (std::sqrt(square) + adamw.eps));
}

inline void reference_step(const flatshard::SGD& sgd, int time, Wide g, ReferenceElement& e) {
  auto& p = e.parameter;
  auto& buffer = e.states[0];
  Tracked direction;
  direction.set(sgd.maximize ? -g : g, sgd.weight_decay * p.value);
  const bool starts = time == 1 || sgd.momentum == 0;
  buffer.largest = std::max(buffer.largest, direction.largest);
  if (starts)
    buffer.set(direction.value, 0);
  else
    buffer.set(sgd.momentum * buffer.value, (1 - Wide{sgd.dampening}) * direction.value);
  const Wide moved = sgd.nesterov ? direction.value + sgd.momentum * buffer.value : buffer.value;
  p.largest = std::max(p.largest, sgd.lr * buffer.largest);
  p.set(p.value, -sgd.lr * moved);
}

inline void reference_step(const flatshard::Lion& lion, int, Wide g, ReferenceElement& e) {
  auto& p = e.parameter;
  auto& m = e.states[0];
  Tracked c;
  c.set(lion.beta1 * m.value, (1 - Wide{lion.beta1}) * g);
  e.uncertain = e.uncertain || (c.value != 0 && std::fabs(c.value) < 1e-5 * c.largest);
  const Wide sign = c.value > 0 ? 1 : (c.value < 0 ? -1 : 0);
  p.set(p.value, -lion.lr * lion.weight_decay * p.value);
  p.set(p.value, -lion.lr * sign);
  m.set(lion.beta2 * m.value, (1 - Wide{lion.beta2}) * g);
}

inline void reference_step(const flatshard::Adagrad& adagrad, int time, Wide g,
                           ReferenceElement& e) {
  auto& p = e.parameter;
  const Wide direction = g + adagrad.weight_decay * p.value;
  e.states[0].set(e.states[0].value, direction * direction);
  const Wide step = adagrad.lr / (1 + (time - 1) * Wide{adagrad.lr_decay});
  p.set(p.value, -step * direction / (std::sqrt(e.states[0].value) + adagrad.eps));
}

/// |value - reference| relative to the largest term, in units of Real's epsilon (an ulp of 1).
template <class Real>
double error_in_ulps(Real value, Wide reference, Wide largest) {
  if (largest == 0) return value == 0 && reference == 0 ? 0 : HUGE_VAL;
  const Wide ulp = largest * Wide{std::numeric_limits<Real>::epsilon()};
  return static_cast<double>(std::fabs(Wide{value} - reference) / ulp);
}

}  // namespace flatshard_test
