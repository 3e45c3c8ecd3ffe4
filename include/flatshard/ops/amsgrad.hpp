// AMSGrad (Reddi, Kale and Kumar 2018): Adam or AdamW that divides by the largest second moment so
// far, as PyTorch's Adam and AdamW do with amsgrad = True.
#pragma once

#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/power.hpp>

#include <array>

namespace flatshard {

/// g = -g if maximize;
/// p = (1 - lr weight_decay) p if decoupled_weight_decay, else g = g + weight_decay p;
/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  w = max(w, v);
/// p = p - lr / (1 - beta1^t) * m / (sqrt(w) / sqrt(1 - beta2^t) + eps)
///
/// The largest moment is taken before bias correction, as PyTorch does.
struct AMSGrad {
  double lr = 1e-3;                     // >= 0
  double beta1 = 0.9;                   // in [0, 1)
  double beta2 = 0.999;                 // in [0, 1)
  double eps = 1e-8;                    // > 0, as a float too
  double weight_decay = 0;              // >= 0
  bool decoupled_weight_decay = false;  // true: of AdamW, false: of Adam
  bool maximize = false;                // moves up the gradient

  static constexpr std::string_view name = "amsgrad";
  static constexpr std::array<std::string_view, 3> state_names{"exp_avg", "exp_avg_sq",
                                                               "max_exp_avg_sq"};
  friend constexpr bool operator==(const AMSGrad&, const AMSGrad&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
    visit("decoupled_weight_decay", self.decoupled_weight_decay);
    visit("maximize", self.maximize);
  }

  template <class Real>
  struct Coefficients {
    Real sign;                   // of the gradient: -1 to maximize
    Real weight_decay;           // of AMSGrad, 0 if decoupled
    Real decay;                  // lr * weight_decay if decoupled, else 0
    Real beta1, gradient_share;  // beta1, 1 - beta1
    Real beta2, square_share;    // beta2, 1 - beta2
    Real rsqrt_correction;       // 1 / sqrt(1 - beta2^t)
    Real eps;                    // of AMSGrad
    Real step;                   // lr / (1 - beta1^t)
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    const double correction1 = one_minus_power(beta1, time);
    const double correction2 = one_minus_power(beta2, time);
    return {maximize ? Real{-1} : Real{1},
            decoupled_weight_decay ? Real{0} : exact::round_to<Real>(weight_decay),
            decoupled_weight_decay ? exact::round_to<Real>(exact::mul(lr, weight_decay)) : Real{0},
            exact::round_to<Real>(beta1),
            exact::round_to<Real>(exact::add(1.0, -beta1)),
            exact::round_to<Real>(beta2),
            exact::round_to<Real>(exact::add(1.0, -beta2)),
            exact::round_to<Real>(exact::div(1.0, exact::sqrt(correction2))),
            exact::round_to<Real>(eps),
            exact::round_to<Real>(exact::div(lr, correction1))};
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
    const Real largest = exact::is_less(v, states[2]) ? states[2] : v;  // a NaN stays
    const Real denominator = exact::fma(exact::sqrt(largest), with.rsqrt_correction, with.eps);
    const Real decayed = exact::fma(exact::negate(with.decay), parameter, parameter);
    parameter = exact::fma(exact::negate(with.step), exact::div(m, denominator), decayed);
    states[0] = m;
    states[1] = v;
    states[2] = largest;
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const AMSGrad& amsgrad);

static_assert(ElementwiseOptimizer<AMSGrad>);

}  // namespace flatshard
