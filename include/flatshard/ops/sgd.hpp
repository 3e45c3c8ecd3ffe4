// Stochastic gradient descent with momentum, as PyTorch defines it.
#pragma once

#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>

#include <array>

namespace flatshard {

/// g = -g if maximize;  g = g + weight_decay p;  b = g at the first update or without momentum,
/// else momentum b + (1 - dampening) g;  p = p - lr (g + momentum b if nesterov, else b)
struct SGD {
  double lr = 1e-3;           // >= 0
  double momentum = 0.0;      // >= 0
  double dampening = 0.0;     // at most 1; 0 with nesterov
  double weight_decay = 0.0;  // >= 0
  bool nesterov = false;      // needs momentum > 0
  bool maximize = false;      // moves up the gradient

  static constexpr std::string_view name = "sgd";
  static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};
  friend constexpr bool operator==(const SGD&, const SGD&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("momentum", self.momentum);
    visit("dampening", self.dampening);
    visit("weight_decay", self.weight_decay);
    visit("nesterov", self.nesterov);
    visit("maximize", self.maximize);
  }

  template <class Real>
  struct Coefficients {
    Real sign;                      // of the gradient: -1 to maximize
    Real weight_decay;              // of SGD
    Real momentum, gradient_share;  // momentum, 1 - dampening
    Real lr;                        // of SGD
    bool decays;                    // weight_decay is not zero
    bool starts;                    // the buffer becomes the gradient
    bool nesterov;                  // of SGD
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    return {maximize ? Real{-1} : Real{1},   exact::round_to<Real>(weight_decay),
            exact::round_to<Real>(momentum), exact::round_to<Real>(exact::add(1.0, -dampening)),
            exact::round_to<Real>(lr),       weight_decay != 0,
            time == 1 || momentum == 0,      nesterov};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real up = exact::mul(with.sign, gradient);
    const Real g = with.decays ? exact::fma(with.weight_decay, parameter, up) : up;
    const Real carried = exact::fma(with.momentum, states[0], exact::mul(with.gradient_share, g));
    const Real buffer = with.starts ? g : carried;
    const Real ahead = exact::fma(with.momentum, buffer, g);
    parameter = exact::fma(exact::negate(with.lr), with.nesterov ? ahead : buffer, parameter);
    states[0] = buffer;
  }
};

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const SGD& sgd);

static_assert(ElementwiseOptimizer<SGD>);

}  // namespace flatshard
