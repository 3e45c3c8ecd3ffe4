// What an optimizer functor must have to run in every strategy and precision and on every device.
//
// A functor is a plain aggregate of hyper-parameters (doubles) that says how one element moves:
//
//   struct Descent {
//     double lr = 1e-3;
//     static constexpr std::array<std::string_view, 0> state_names{};
//     template <class Real> struct Coefficients { Real lr; };
//     template <class Real>
//     FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t) const {
//       return {static_cast<Real>(lr)};
//     }
//     template <class Real>
//     FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(
//         const Coefficients<Real>& with, Real& parameter, Real gradient, Real*) {
//       parameter = exact::fma(-with.lr, gradient, parameter);
//     }
//   };
//
// coefficients(time) forms, in double and rounded once, what all elements share; time is 1 for the
// first update. update moves one element, with the operations of core/exact.hpp only; the gradient
// is already averaged and clipped. A static member template visit_hyper_parameters(self, visit)
// that calls visit(name, self.member) for each lets checkpoints carry the hyper-parameters. All
// zeros must stay zeros (padding is never special).
#pragma once

#include <flatshard/ops/step.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace flatshard {

template <class Functor>
concept NamesItsStates = requires {
  { Functor::state_names.size() } -> std::convertible_to<std::size_t>;
  { *Functor::state_names.data() } -> std::convertible_to<std::string_view>;
}
&&(Functor::state_names.size() <= max_optimizer_states);

template <class Functor>
concept TravelsByValue = std::is_trivially_copyable_v<Functor> &&
                         sizeof(Functor) <= max_functor_bytes;

template <class Functor, class Real>
concept FormsCoefficients = requires(const Functor& functor, std::int64_t time) {
  {
    functor.template coefficients<Real>(time)
    } -> std::same_as<typename Functor::template Coefficients<Real>>;
};

template <class Functor, class Real>
concept UpdatesAnElement =
    requires(const typename Functor::template Coefficients<Real>& coefficients, Real& parameter,
             Real gradient, Real* states) {
  Functor::update(coefficients, parameter, gradient, states);
};

template <class Functor>
concept ElementwiseOptimizer = TravelsByValue<Functor> && NamesItsStates<Functor> &&
    FormsCoefficients<Functor, float> && FormsCoefficients<Functor, double> &&
    UpdatesAnElement<Functor, float> && UpdatesAnElement<Functor, double>;

/// How many states an element has.
template <NamesItsStates Functor>
inline constexpr int state_count = static_cast<int>(Functor::state_names.size());

}  // namespace flatshard
