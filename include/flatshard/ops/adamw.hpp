// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019), as PyTorch defines it:
// epsilon outside the square root and after bias correction.
#pragma once

#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/power.hpp>

#include <array>

namespace flatshard {

/// g = -g if maximize;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// p = (1 - lr weight_decay) p;
/// p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
struct AdamW {
  double lr = 1e-3;            // >= 0
  double beta1 = 0.9;          // in [0, 1)
  double beta2 = 0.999;        // in [0, 1)
  double eps = 1e-8;           // > 0, as a float too
  double weight_decay = 1e-2;  // >= 0
  bool maximize = false;       // moves up the gradient

  static constexpr std::string_view name = "adamw";
  static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};
  friend constexpr bool operator==(const AdamW&, const AdamW&) = default;

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
    Real beta1, gradient_share;  // beta1, 1 - beta1; its sign is the gradient's
    Real beta2, square_share;    // beta2, 1 - beta2
    Real rsqrt_correction;       // 1 / sqrt(1 - beta2^t)
    Real eps;                    // of AdamW
    Real decay;                  // lr * weight_decay
    Real step;                   // lr / (1 - beta1^t)
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    const double share = exact::add(1.0, -beta1);
    const double correction1 = one_minus_power(beta1, time);
    const double correction2 = one_minus_power(beta2, time);
    return {exact::round_to<Real>(beta1),
            exact::round_to<Real>(maximize ? -share : share),
            exact::round_to<Real>(beta2),
            exact::round_to<Real>(exact::add(1.0, -beta2)),
            exact::round_to<Real>(exact::div(1.0, exact::sqrt(correction2))),
            exact::round_to<Real>(eps),
            exact::round_to<Real>(exact::mul(lr, weight_decay)),
            exact::round_to<Real>(exact::div(lr, correction1))};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real square = exact::mul(gradient, gradient);
    const Real m = exact::fma(with.beta1, states[0], exact::mul(with.gradient_share, gradient));
    const Real v = exact::fma(with.beta2, states[1], exact::mul(with.square_share, square));
    const Real denominator = exact::fma(exact::sqrt(v), with.rsqrt_correction, with.eps);
    const Real decayed = exact::fma(exact::negate(with.decay), parameter, parameter);
    parameter = exact::fma(exact::negate(with.step), exact::div(m, denominator), decayed);
    states[0] = m;
    states[1] = v;
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const AdamW& adamw);

static_assert(ElementwiseOptimizer<AdamW>);

}  // namespace flatshard
