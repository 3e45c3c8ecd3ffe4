// An optimizer is a plain value.
// expect: TravelsByValue
// expect: is_trivially_copyable
#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>

#include <array>

struct Descent {
#ifdef BAD
  double lr = 1e-3;
  ~Descent() { lr = 0; }
#else
  double lr = 1e-3;
#endif
  static constexpr std::array<std::string_view, 0> state_names{};
  template <class Real>
  struct Coefficients {
    Real lr;
  };
  template <class Real>
  Coefficients<Real> coefficients(std::int64_t) const {
    return {static_cast<Real>(lr)};
  }
  template <class Real>
  static void update(const Coefficients<Real>& with, Real& parameter, Real gradient, Real*) {
    parameter = flatshard::exact::fma(-with.lr, gradient, parameter);
  }
};

template <flatshard::ElementwiseOptimizer Functor>
void train_with(const Functor&) {}

void train() { train_with(Descent{}); }
