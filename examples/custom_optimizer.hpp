// An optimizer of your own: LaProp (Ziyin, Wang and Ueda 2020, "LaProp: separating momentum and
// adaptivity in Adam"), with decoupled weight decay. C++ compilers and nvcc read this header alike.
#pragma once

#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/power.hpp>

#include <array>

/// n = beta2 n + (1 - beta2) g^2;  m = beta1 m + (1 - beta1) g / (sqrt(n / (1 - beta2^t)) + eps);
/// p = (1 - lr weight_decay) p - lr m / (1 - beta1^t)
struct LaProp {
  double lr = 4e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-15;
  double weight_decay = 0;

  static constexpr std::string_view name = "laprop";
  static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};

  /// So that checkpoints carry them.
  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
  }

  template <class Real>
  struct Coefficients {
    Real beta1, gradient_share, beta2, square_share, rsqrt_correction, eps, decay, step;
  };
  /// What all elements share: formed in double, rounded once.
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    using namespace flatshard;
    return {exact::round_to<Real>(beta1),
            exact::round_to<Real>(exact::add(1.0, -beta1)),
            exact::round_to<Real>(beta2),
            exact::round_to<Real>(exact::add(1.0, -beta2)),
            exact::round_to<Real>(exact::div(1.0, exact::sqrt(one_minus_power(beta2, time)))),
            exact::round_to<Real>(eps),
            exact::round_to<Real>(exact::mul(lr, weight_decay)),
            exact::round_to<Real>(exact::div(lr, one_minus_power(beta1, time)))};
  }
  /// One element. Only the operations of core/exact.hpp, and no product as an operand of a sum.
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    using namespace flatshard;
    const Real square = exact::mul(gradient, gradient);
    const Real n = exact::fma(with.beta2, states[1], exact::mul(with.square_share, square));
    const Real scale = exact::fma(exact::sqrt(n), with.rsqrt_correction, with.eps);
    const Real direction = exact::div(gradient, scale);
    const Real m = exact::fma(with.beta1, states[0], exact::mul(with.gradient_share, direction));
    const Real decayed = exact::fma(exact::negate(with.decay), parameter, parameter);
    parameter = exact::fma(exact::negate(with.step), m, decayed);
    states[0] = m;
    states[1] = n;
  }
};
static_assert(flatshard::ElementwiseOptimizer<LaProp>);
