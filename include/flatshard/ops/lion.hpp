// Lion: sign of a momentum (Chen et al. 2023, "Symbolic discovery of optimization algorithms").
#pragma once

#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>

#include <array>

namespace flatshard {

/// c = beta1 m + (1 - beta1) g;  p = (1 - lr weight_decay) p - lr sign(c), sign(0) = 0;
/// m = beta2 m + (1 - beta2) g
struct Lion {
  double lr = 1e-4;           // >= 0
  double beta1 = 0.9;         // in [0, 1)
  double beta2 = 0.99;        // in [0, 1)
  double weight_decay = 0.0;  // >= 0

  static constexpr std::string_view name = "lion";
  static constexpr std::array<std::string_view, 1> state_names{"exp_avg"};
  friend constexpr bool operator==(const Lion&, const Lion&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("weight_decay", self.weight_decay);
  }

  template <class Real>
  struct Coefficients {
    Real beta1, direction_share;  // beta1, 1 - beta1
    Real beta2, gradient_share;   // beta2, 1 - beta2
    Real decay;                   // lr * weight_decay
    Real lr;                      // of Lion
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t) const {
    return {exact::round_to<Real>(beta1),
            exact::round_to<Real>(exact::add(1.0, -beta1)),
            exact::round_to<Real>(beta2),
            exact::round_to<Real>(exact::add(1.0, -beta2)),
            exact::round_to<Real>(exact::mul(lr, weight_decay)),
            exact::round_to<Real>(lr)};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real m = states[0];
    const Real c = exact::fma(with.beta1, m, exact::mul(with.direction_share, gradient));
    const Real below = exact::is_less(c, Real{0}) ? Real{-1} : c;
    const Real sign = exact::is_less(Real{0}, c) ? Real{1} : below;  // zeros and NaN are themselves
    const Real decayed = exact::fma(exact::negate(with.decay), parameter, parameter);
    parameter = exact::fma(exact::negate(with.lr), sign, decayed);
    states[0] = exact::fma(with.beta2, m, exact::mul(with.gradient_share, gradient));
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const Lion& lion);

static_assert(ElementwiseOptimizer<Lion>);

}  // namespace flatshard
