// RMSProp (Hinton 2012, lecture 6e), as PyTorch defines it: epsilon outside the square root, weight
// decay added to the gradient.
//
// Momentum and centring each need a state more, so that whether an update has them is part of its
// type: RMSProp, RMSPropMomentum, CenteredRMSProp, CenteredRMSPropMomentum.
#pragma once

#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>

#include <array>
#include <type_traits>

namespace flatshard {

/// The type of `momentum` in an RMSProp that has no state for it: nothing can be assigned.
struct NeedsRMSPropMomentum {
  friend constexpr bool operator==(NeedsRMSPropMomentum, NeedsRMSPropMomentum) = default;
};

namespace detail {

template <bool HasMomentum, bool IsCentered>
struct RMSPropNames;
template <>
struct RMSPropNames<false, false> {
  static constexpr std::string_view name = "rmsprop";
  static constexpr std::array<std::string_view, 1> states{"square_avg"};
};
template <>
struct RMSPropNames<true, false> {
  static constexpr std::string_view name = "rmsprop_momentum";
  static constexpr std::array<std::string_view, 2> states{"square_avg", "momentum_buffer"};
};
template <>
struct RMSPropNames<false, true> {
  static constexpr std::string_view name = "centered_rmsprop";
  static constexpr std::array<std::string_view, 2> states{"square_avg", "grad_avg"};
};
template <>
struct RMSPropNames<true, true> {
  static constexpr std::string_view name = "centered_rmsprop_momentum";
  static constexpr std::array<std::string_view, 3> states{"square_avg", "momentum_buffer",
                                                          "grad_avg"};
};

}  // namespace detail

/// g = -g if maximize;  g = g + weight_decay p;  s = alpha s + (1 - alpha) g^2;
/// a = alpha a + (1 - alpha) g;  u = g / (sqrt(max(s - a^2, 0)) + eps) if centered,
/// else u = g / (sqrt(s) + eps);
/// b = momentum b + u;  p = p - lr b if it has momentum, else p = p - lr u
///
/// s - a^2 is never negative but by rounding; PyTorch then takes the square root of it all the same
/// and gets NaN.
template <bool HasMomentum, bool IsCentered>
struct BasicRMSProp {
  double lr = 1e-2;         // >= 0
  double alpha = 0.99;      // in [0, 1)
  double eps = 1e-8;        // > 0, as a float too
  double weight_decay = 0;  // >= 0
  std::conditional_t<HasMomentum, double, NeedsRMSPropMomentum> momentum = {};  // >= 0
  bool maximize = false;  // moves up the gradient

  static constexpr std::string_view name = detail::RMSPropNames<HasMomentum, IsCentered>::name;
  /// Of each element's states (NamesItsStates).
  static constexpr auto state_names = detail::RMSPropNames<HasMomentum, IsCentered>::states;
  friend constexpr bool operator==(const BasicRMSProp&, const BasicRMSProp&) = default;

  template <class Self, class Visit>
  static void visit_hyper_parameters(Self& self, const Visit& visit) {
    visit("lr", self.lr);
    visit("alpha", self.alpha);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
    if constexpr (HasMomentum) visit("momentum", self.momentum);
    visit("maximize", self.maximize);
  }

  template <class Real>
  struct Coefficients {
    Real sign;          // of the gradient: -1 to maximize
    Real weight_decay;  // of RMSProp
    Real alpha, share;  // alpha, 1 - alpha
    Real eps;           // of RMSProp
    Real momentum;      // of RMSProp, or 0
    Real lr;            // of RMSProp
    bool decays;        // weight_decay is not zero
  };

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t) const {
    double carried = 0;
    if constexpr (HasMomentum) carried = momentum;
    return {maximize ? Real{-1} : Real{1}, exact::round_to<Real>(weight_decay),
            exact::round_to<Real>(alpha),  exact::round_to<Real>(exact::add(1.0, -alpha)),
            exact::round_to<Real>(eps),    exact::round_to<Real>(carried),
            exact::round_to<Real>(lr),     weight_decay != 0};
  }

  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    const Real up = exact::mul(with.sign, gradient);
    const Real g = with.decays ? exact::fma(with.weight_decay, parameter, up) : up;
    const Real added = exact::mul(with.share, exact::mul(g, g));
    const Real square = exact::fma(with.alpha, states[0], added);
    Real spread = square;
    if constexpr (IsCentered) {
      Real& average = states[HasMomentum ? 2 : 1];
      average = exact::fma(with.alpha, average, exact::mul(with.share, g));
      const Real variance = exact::fma(exact::negate(average), average, square);
      spread = exact::is_less(variance, Real{0}) ? Real{0} : variance;
    }
    Real direction = exact::div(g, exact::add(exact::sqrt(spread), with.eps));
    if constexpr (HasMomentum) {
      direction = exact::fma(with.momentum, states[1], direction);
      states[1] = direction;
    }
    parameter = exact::fma(exact::negate(with.lr), direction, parameter);
    states[0] = square;
  }
};

using RMSProp = BasicRMSProp<false, false>;                // one state
using RMSPropMomentum = BasicRMSProp<true, false>;         // two states
using CenteredRMSProp = BasicRMSProp<false, true>;         // two states
using CenteredRMSPropMomentum = BasicRMSProp<true, true>;  // three states

/// Throws UsageError naming the hyper-parameter that is out of its range.
void validate(const RMSProp& rmsprop);
void validate(const RMSPropMomentum& rmsprop);          // the same
void validate(const CenteredRMSProp& rmsprop);          // the same
void validate(const CenteredRMSPropMomentum& rmsprop);  // the same

static_assert(ElementwiseOptimizer<RMSProp> && ElementwiseOptimizer<RMSPropMomentum> &&
              ElementwiseOptimizer<CenteredRMSProp> &&
              ElementwiseOptimizer<CenteredRMSPropMomentum>);

}  // namespace flatshard
