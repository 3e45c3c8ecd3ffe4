// NAdam: Adam with Nesterov momentum (Dozat 2016), as PyTorch defines it.
#pragma once

#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/power.hpp>

#include <array>

namespace flatshard {

namespace detail {

/// The momentum of NAdam over time, a pure function of the number of the update: nothing of it is
/// stored, so that checkpoints, resumed runs and devices cannot differ in it.
///   mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)
struct NAdamMomentum {
  double now;                     // mu_t
  double next;                    // mu_(t + 1)
  double one_minus_product;       // 1 - mu_1 ... mu_t
  double one_minus_next_product;  // 1 - mu_1 ... mu_(t + 1)
};

/// 0.96^exponent for exponent >= 0: its whole part by squaring, the rest by the series of exp.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double power_of_096(double exponent) {
  constexpr double logarithm = -0.040821994520255166;  // of 0.96
  constexpr double most = 65536;                       // from far below here on it is zero
  const double limited = exponent < most ? exponent : most;
  const auto whole = static_cast<std::int64_t>(limited);
  const double rest = exact::add(limited, -static_cast<double>(whole));
  const double x = exact::mul(rest, logarithm);  // x^10 / 10! is below 2^-64
  double series = 1;
  for (int k = 9; k >= 1; --k)
    series = exact::fma(exact::div(x, static_cast<double>(k)), series, 1.0);
  return exact::mul(power(0.96, whole), series);
}

/// mu_1 ... mu_(time - 1), or less than 2^-70 where it is less: 1 minus it is then 1. Ends after
/// some 60 factors, which are nearly one half, or, where momentum_decay is large, after a thousand:
/// then all that follow are beta1.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double nadam_product(double beta1, double base,
                                                            std::int64_t time) {
  double product = 1;
  double decay = 1;
  for (std::int64_t i = 1; i < time && product >= 0x1p-70; ++i) {
    if (decay < 0x1p-60) return exact::mul(product, power(beta1, time - i));
    decay = exact::mul(decay, base);
    product = exact::mul(product, exact::mul(beta1, exact::fma(-0.5, decay, 1.0)));
  }
  return product;
}

/// At update `time`, 1 for the first.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE NAdamMomentum nadam_momentum(double beta1,
                                                                    double momentum_decay,
                                                                    std::int64_t time) {
  const double base = power_of_096(momentum_decay);
  const double now = exact::mul(beta1, exact::fma(-0.5, power(base, time), 1.0));
  const double next = exact::mul(beta1, exact::fma(-0.5, power(base, time + 1), 1.0));
  const double before = nadam_product(beta1, base, time);
  return {now, next, exact::fma(-before, now, 1.0),
          exact::fma(-exact::mul(before, now), next, 1.0)};
}

}  // namespace detail

/// g = -g if maximize;
/// p = (1 - lr weight_decay) p if decoupled_weight_decay, else g = g + weight_decay p;
/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// p = p - lr ((1 - mu_t) / (1 - mu_1 ... mu_t) g + mu_(t + 1) / (1 - mu_1 ... mu_(t + 1)) m)
///        / (sqrt(v) / sqrt(1 - beta2^t) + eps)
///
/// with mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2). PyTorch keeps the product of all mu as a
/// state in fp32 (`mu_product`): it differs once beta1 or momentum_decay change within a run; here
/// they count from the beginning.
struct NAdam {
  double lr = 2e-3;                     // >= 0
  double beta1 = 0.9;                   // in [0, 1)
  double beta2 = 0.999;                 // in [0, 1)
  double eps = 1e-8;                    // > 0, as a float too
  double weight_decay = 0;              // >= 0
  double momentum_decay = 4e-3;         // >= 0
  bool decoupled_weight_decay = false;  // true: of AdamW, false: of Adam
  bool maximize = false;                // moves up the gradient

  static constexpr std::string_view name = "nadam";
  static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};
  friend constexpr bool operator==(const NAdam&, const NAdam&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
    visit("momentum_decay", self.momentum_decay);
    visit("decoupled_weight_decay", self.decoupled_weight_decay);
    visit("maximize", self.maximize);
  }

  template <class Real>
  struct Coefficients {
    Real sign;                   // of the gradient: -1 to maximize
    Real weight_decay;           // of NAdam, 0 if decoupled
    Real decay;                  // lr * weight_decay if decoupled, else 0
    Real beta1, gradient_share;  // beta1, 1 - beta1
    Real beta2, square_share;    // beta2, 1 - beta2
    Real rsqrt_correction;       // 1 / sqrt(1 - beta2^t)
    Real eps;                    // of NAdam
    Real gradient_step;          // lr (1 - mu_t) / (1 - mu_1 ... mu_t)
    Real momentum_step;          // lr mu_(t + 1) / (1 - mu_1 ... mu_(t + 1))
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    const detail::NAdamMomentum mu = detail::nadam_momentum(beta1, momentum_decay, time);
    const double correction2 = one_minus_power(beta2, time);
    const double gradient_step = exact::mul(lr, exact::add(1.0, -mu.now));
    const double momentum_step = exact::mul(lr, mu.next);
    return {maximize ? Real{-1} : Real{1},
            decoupled_weight_decay ? Real{0} : exact::round_to<Real>(weight_decay),
            decoupled_weight_decay ? exact::round_to<Real>(exact::mul(lr, weight_decay)) : Real{0},
            exact::round_to<Real>(beta1),
            exact::round_to<Real>(exact::add(1.0, -beta1)),
            exact::round_to<Real>(beta2),
            exact::round_to<Real>(exact::add(1.0, -beta2)),
            exact::round_to<Real>(exact::div(1.0, exact::sqrt(correction2))),
            exact::round_to<Real>(eps),
            exact::round_to<Real>(exact::div(gradient_step, mu.one_minus_product)),
            exact::round_to<Real>(exact::div(momentum_step, mu.one_minus_next_product))};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real up = exact::mul(with.sign, gradient);
    const Real g = exact::fma(with.weight_decay, parameter, up);
    const Real square = exact::mul(g, g);
    const Real m = exact::fma(with.beta1, states[0], exact::mul(with.gradient_share, g));
    const Real v = exact::fma(with.beta2, states[1], exact::mul(with.square_share, square));
    const Real denominator = exact::fma(exact::sqrt(v), with.rsqrt_correction, with.eps);
    const Real ahead = exact::fma(with.gradient_step, g, exact::mul(with.momentum_step, m));
    const Real decayed = exact::fma(exact::negate(with.decay), parameter, parameter);
    parameter = exact::add(decayed, exact::negate(exact::div(ahead, denominator)));
    states[0] = m;
    states[1] = v;
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const NAdam& nadam);

static_assert(ElementwiseOptimizer<NAdam>);

}  // namespace flatshard
