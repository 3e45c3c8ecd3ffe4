// Adam (Kingma and Ba 2015) with weight decay added to the gradient (L2 regularisation), as PyTorch
// defines it. AdamW decays the parameter instead; AMSGrad keeps the largest second moment.
#pragma once

#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/power.hpp>

#include <array>

namespace flatshard {

/// g = -g if maximize;  g = g + weight_decay p;
/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
struct Adam {
  double lr = 1e-3;         // >= 0
  double beta1 = 0.9;       // in [0, 1)
  double beta2 = 0.999;     // in [0, 1)
  double eps = 1e-8;        // > 0, as a float too
  double weight_decay = 0;  // >= 0
  bool maximize = false;    // moves up the gradient

  static constexpr std::string_view name = "adam";
  static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};
  friend constexpr bool operator==(const Adam&, const Adam&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
    visit("maximize", self.maximize);
  }

  template <class Real>
  struct Coefficients {
    Real sign;                   // of the gradient: -1 to maximize
    Real weight_decay;           // of Adam
    Real beta1, gradient_share;  // beta1, 1 - beta1
    Real beta2, square_share;    // beta2, 1 - beta2
    Real rsqrt_correction;       // 1 / sqrt(1 - beta2^t)
    Real eps;                    // of Adam
    Real step;                   // lr / (1 - beta1^t)
    bool decays;                 // weight_decay is not zero
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    const double correction1 = one_minus_power(beta1, time);
    const double correction2 = one_minus_power(beta2, time);
    return {maximize ? Real{-1} : Real{1},
            exact::round_to<Real>(weight_decay),
            exact::round_to<Real>(beta1),
            exact::round_to<Real>(exact::add(1.0, -beta1)),
            exact::round_to<Real>(beta2),
            exact::round_to<Real>(exact::add(1.0, -beta2)),
            exact::round_to<Real>(exact::div(1.0, exact::sqrt(correction2))),
            exact::round_to<Real>(eps),
            exact::round_to<Real>(exact::div(lr, correction1)),
            weight_decay != 0};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real up = exact::mul(with.sign, gradient);
    const Real g = with.decays ? exact::fma(with.weight_decay, parameter, up) : up;
    const Real square = exact::mul(g, g);
    const Real m = exact::fma(with.beta1, states[0], exact::mul(with.gradient_share, g));
    const Real v = exact::fma(with.beta2, states[1], exact::mul(with.square_share, square));
    const Real denominator = exact::fma(exact::sqrt(v), with.rsqrt_correction, with.eps);
    parameter = exact::fma(exact::negate(with.step), exact::div(m, denominator), parameter);
    states[0] = m;
    states[1] = v;
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const Adam& adam);

static_assert(ElementwiseOptimizer<Adam>);

}  // namespace flatshard
