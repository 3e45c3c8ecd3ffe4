// An optimizer forms what all elements share.
// expect: FormsCoefficients
// expect: coefficients
#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>

#include <array>

struct Descent {
  double lr = 1e-3;
  static constexpr std::array<std::string_view, 0> state_names{};
  template <class Real>
  struct Coefficients {
    Real lr;
  };
#ifndef BAD
  template <class Real>
  Coefficients<Real> coefficients(std::int64_t) const {
    return {static_cast<Real>(lr)};
  }
#endif
  template <class Real>
  static void update(const Coefficients<Real>& with, Real& parameter, Real gradient, Real*) {
    parameter = flatshard::exact::fma(-with.lr, gradient, parameter);
  }
};

template <flatshard::ElementwiseOptimizer Functor>
void train_with(const Functor&) {}

void train() { train_with(Descent{}); }
