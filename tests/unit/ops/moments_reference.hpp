// The formulas of Adam, AMSGrad, NAdam and RMSProp, written naively, with running errors.
#pragma once

#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include "running_error.hpp"

namespace flatshard_test {

/// One element: its parameter and states.
struct BoundedElement {
  Bounded parameter;
  Bounded states[flatshard::max_optimizer_states];
};

/// 1 - beta^time, formed in double.
template <class Real>
Bounded correction(double beta, int time) {
  return formed<Real>(1 - std::pow(Wide{beta}, time), time + 1);
}

/// The gradient up or down, with the weight decay of L2 regularisation.
template <class Real, class Functor>
Bounded regularised(const Functor& functor, Wide gradient, const Bounded& parameter) {
  const Bounded g{functor.maximize ? -gradient : gradient};
  if (functor.weight_decay == 0) return g;
  return g + formed<Real>(functor.weight_decay) * parameter;
}

/// average = beta average + (1 - beta) value
template <class Real>
void average(Bounded& average, double beta, const Bounded& value) {
  average = formed<Real>(beta) * average + formed<Real>(1 - Wide{beta}) * value;
}

template <class Real, class Functor>
void decay(const Functor& functor, Bounded& parameter) {
  parameter = parameter - formed<Real>(Wide{functor.lr} * functor.weight_decay) * parameter;
}

/// p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
template <class Real, class Functor>
Bounded moved(const Functor& adam, int time, const Bounded& p, const Bounded& m, const Bounded& v) {
  const Bounded mean = m / correction<Real>(adam.beta1, time);
  const Bounded root = sqrt(v) / sqrt(correction<Real>(adam.beta2, time));
  return p - formed<Real>(adam.lr) * mean / (root + formed<Real>(adam.eps));
}

template <class Real>
void bounded_step(const flatshard::AdamW& adamw, int time, Wide gradient, BoundedElement& e) {
  const Bounded g{adamw.maximize ? -gradient : gradient};
  decay<Real>(adamw, e.parameter);
  average<Real>(e.states[0], adamw.beta1, g);
  average<Real>(e.states[1], adamw.beta2, g * g);
  e.parameter = moved<Real>(adamw, time, e.parameter, e.states[0], e.states[1]);
}

template <class Real>
void bounded_step(const flatshard::Adam& adam, int time, Wide gradient, BoundedElement& e) {
  const Bounded g = regularised<Real>(adam, gradient, e.parameter);
  average<Real>(e.states[0], adam.beta1, g);
  average<Real>(e.states[1], adam.beta2, g * g);
  e.parameter = moved<Real>(adam, time, e.parameter, e.states[0], e.states[1]);
}

template <class Real>
void bounded_step(const flatshard::AMSGrad& amsgrad, int time, Wide gradient, BoundedElement& e) {
  Bounded g{amsgrad.maximize ? -gradient : gradient};
  if (amsgrad.decoupled_weight_decay)
    decay<Real>(amsgrad, e.parameter);
  else
    g = regularised<Real>(amsgrad, gradient, e.parameter);
  average<Real>(e.states[0], amsgrad.beta1, g);
  average<Real>(e.states[1], amsgrad.beta2, g * g);
  e.states[2] = max(e.states[2], e.states[1]);
  e.parameter = moved<Real>(amsgrad, time, e.parameter, e.states[0], e.states[2]);
}

/// mu_time, by pow.
inline Wide nadam_mu(const flatshard::NAdam& nadam, int time) {
  return nadam.beta1 * (1 - std::pow(Wide{0.96}, time * Wide{nadam.momentum_decay}) / 2);
}
inline Wide nadam_mu_product(const flatshard::NAdam& nadam, int time) {
  Wide product = 1;
  for (int i = 1; i <= time; ++i) product *= nadam_mu(nadam, i);
  return product;
}

template <class Real>
void bounded_step(const flatshard::NAdam& nadam, int time, Wide gradient, BoundedElement& e) {
  Bounded g{nadam.maximize ? -gradient : gradient};
  if (nadam.decoupled_weight_decay)
    decay<Real>(nadam, e.parameter);
  else
    g = regularised<Real>(nadam, gradient, e.parameter);
  average<Real>(e.states[0], nadam.beta1, g);
  average<Real>(e.states[1], nadam.beta2, g * g);
  const int roundings = 8 * (time + 8);  // more than the means that form the momentum in double
  const auto weight = [&](Wide share, int until) {
    const Wide product = nadam_mu_product(nadam, until);
    return formed<Real>(share, roundings) / formed<Real>(1 - product, roundings);
  };
  const Bounded ahead = weight(1 - nadam_mu(nadam, time), time) * g +
                        weight(nadam_mu(nadam, time + 1), time + 1) * e.states[0];
  const Bounded root = sqrt(e.states[1]) / sqrt(correction<Real>(nadam.beta2, time));
  e.parameter = e.parameter - formed<Real>(nadam.lr) * ahead / (root + formed<Real>(nadam.eps));
}

template <class Real, bool HasMomentum, bool IsCentered>
void bounded_step(const flatshard::BasicRMSProp<HasMomentum, IsCentered>& rmsprop, int,
                  Wide gradient, BoundedElement& e) {
  const Bounded g = regularised<Real>(rmsprop, gradient, e.parameter);
  average<Real>(e.states[0], rmsprop.alpha, g * g);
  Bounded square = e.states[0];
  if constexpr (IsCentered) {
    Bounded& mean = e.states[HasMomentum ? 2 : 1];
    average<Real>(mean, rmsprop.alpha, g);
    square = square - mean * mean;
  }
  Bounded direction = g / (sqrt(square) + formed<Real>(rmsprop.eps));
  if constexpr (HasMomentum)
    direction = e.states[1] = formed<Real>(rmsprop.momentum) * e.states[1] + direction;
  e.parameter = e.parameter - formed<Real>(rmsprop.lr) * direction;
}

}  // namespace flatshard_test
