// Adagrad (Duchi, Hazan, Singer 2011), as PyTorch defines it: epsilon outside the square root,
// weight decay added to the gradient; its sum starts at zero.
#pragma once

#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>

#include <array>

namespace flatshard {

/// g = g + weight_decay p;  s = s + g^2;  p = p - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
struct Adagrad {
  double lr = 1e-2;         // >= 0
  double lr_decay = 0;      // >= 0
  double weight_decay = 0;  // >= 0
  double eps = 1e-10;       // > 0, as a float too

  static constexpr std::string_view name = "adagrad";
  static constexpr std::array<std::string_view, 1> state_names{"sum"};
  friend constexpr bool operator==(const Adagrad&, const Adagrad&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("lr_decay", self.lr_decay);
    visit("weight_decay", self.weight_decay);
    visit("eps", self.eps);
  }

  template <class Real>
  struct Coefficients {
    Real weight_decay;  // of Adagrad
    Real eps;           // of Adagrad
    Real step;          // lr / (1 + (t - 1) lr_decay)
    bool decays;        // weight_decay is not zero
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    const double slower = exact::fma(static_cast<double>(time - 1), lr_decay, 1.0);
    return {exact::round_to<Real>(weight_decay), exact::round_to<Real>(eps),
            exact::round_to<Real>(exact::div(lr, slower)), weight_decay != 0};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real decayed = exact::fma(with.weight_decay, parameter, gradient);
    const Real g = with.decays ? decayed : gradient;
    const Real sum = exact::fma(g, g, states[0]);
    const Real denominator = exact::add(exact::sqrt(sum), with.eps);
    parameter = exact::fma(exact::negate(with.step), exact::div(g, denominator), parameter);
    states[0] = sum;
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const Adagrad& adagrad);

static_assert(ElementwiseOptimizer<Adagrad>);

}  // namespace flatshard
