// The optimizer step on a range of elements, for any functor and any row of storage types.
#pragma once

#include <flatshard/core/exact.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/random.hpp>
#include <flatshard/tensor/convert.hpp>

#include <cstring>
#include <type_traits>

namespace flatshard {

/// In place of a copy's element type: no copy is written.
struct NoCopy {};

/// The types behind a StepRow.
template <class MasterElement, class GradientElement, class StateElement,
          class CopyElement = NoCopy, bool Stochastic = false>
struct StepTypes {
  using Master = MasterElement;      // of the parameter
  using Gradient = GradientElement;  // of the accumulated gradient
  using State = StateElement;        // of the optimizer's states
  using Copy = CopyElement;          // of the compute copy, or NoCopy
  /// Of the arithmetic.
  using Real = std::conditional_t<std::is_same_v<Master, double>, double, float>;
  /// The new parameter is also stored as Copy.
  static constexpr bool writes_copy = !std::is_same_v<Copy, NoCopy>;
  /// Rounds stochastically.
  static constexpr bool stochastic = Stochastic;
  static_assert(!stochastic || std::is_same_v<Master, Bf16>, "only bf16 rounds stochastically");

  /// The same as a value.
  static constexpr StepRow row() {
    using Compute = std::conditional_t<writes_copy, Copy, Master>;
    return {dtype_of<Master>,  dtype_of<Gradient>, dtype_of<State>,
            dtype_of<Compute>, writes_copy,        stochastic};
  }
};

namespace detail {

/// Rounded to nearest, or with the word of the element for a stochastic bf16.
template <class Element, bool Stochastic, class Real>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Element store(Real value, RandomKey key,
                                                     std::uint32_t index_low) {
  if constexpr (Stochastic && std::is_same_v<Element, Bf16>)
    return stochastic_bf16(value, random_word(key, index_low));
  else
    return convert<Element>(value);
}

/// keys[0] for the master, keys[1 + k] for state k.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE void fill_keys(RandomKey* keys, std::uint64_t seed,
                                                      std::int64_t time, Elements canonical) {
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(canonical) >> 32);
  for (std::uint32_t role = 0; role < 1 + max_optimizer_states; ++role)
    keys[role] = random_key(seed, static_cast<std::uint64_t>(time), role, high);
}

/// What all elements of a piece share.
template <class Functor, class Real>
struct StepShared {
  typename Functor::template Coefficients<Real> coefficients;
  Real gradient_multiplier;
  RandomKey keys[1 + max_optimizer_states];
};

/// Moves element i.
template <class Functor, class Types, class Real>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS void step_element(
    const StepShared<Functor, Real>& shared, std::uint32_t first_index, Elements i,
    typename Types::Master* master, const typename Types::Gradient* gradient,
    typename Types::State* state0, typename Types::State* state1, typename Types::State* state2,
    typename Types::Copy* copy) {
  using State = typename Types::State;
  constexpr int count = state_count<Functor>;
  constexpr bool random = Types::stochastic;
  const std::uint32_t index = first_index + static_cast<std::uint32_t>(i);
  Real states[max_optimizer_states] = {};
  if constexpr (count > 0) states[0] = convert<Real>(state0[i]);
  if constexpr (count > 1) states[1] = convert<Real>(state1[i]);
  if constexpr (count > 2) states[2] = convert<Real>(state2[i]);
  auto parameter = convert<Real>(master[i]);
  const Real mean = exact::mul(convert<Real>(gradient[i]), shared.gradient_multiplier);
  Functor::update(shared.coefficients, parameter, mean, states);
  master[i] = store<typename Types::Master, random>(parameter, shared.keys[0], index);
  if constexpr (count > 0) state0[i] = store<State, random>(states[0], shared.keys[1], index);
  if constexpr (count > 1) state1[i] = store<State, random>(states[1], shared.keys[2], index);
  if constexpr (count > 2) state2[i] = store<State, random>(states[2], shared.keys[3], index);
  if constexpr (Types::writes_copy) copy[i] = convert<typename Types::Copy>(parameter);
}

/// The loop that must vectorise: its pointers do not alias, which only parameters can say.
template <class Functor, class Types, class Real>
FLATSHARD_INLINE void step_elements(
    const StepShared<Functor, Real>& shared, std::uint32_t first_index, Elements count,
    typename Types::Master* __restrict master, const typename Types::Gradient* __restrict gradient,
    typename Types::State* __restrict state0, typename Types::State* __restrict state1,
    typename Types::State* __restrict state2, typename Types::Copy* __restrict copy) {
  for (Elements i = 0; i < count; ++i)
    step_element<Functor, Types, Real>(shared, first_index, i, master, gradient, state0, state1,
                                       state2, copy);
}

template <class Element, class Pointer>
FLATSHARD_INLINE Element* element_at(Pointer* begin, Elements offset) {
  return begin == nullptr ? nullptr : static_cast<Element*>(begin) + offset;
}

/// Elements [done, done + count) of `arguments`, whose canonical indices have equal high words.
template <class Functor, class Types, class Real>
FLATSHARD_INLINE void step_piece(const StepArguments& arguments,
                                 const StepShared<Functor, Real>& shared, Elements done,
                                 Elements count) {
  using State = typename Types::State;
  const auto index_low =
      static_cast<std::uint32_t>((arguments.canonical + done) & Elements{0xffffffff});
  step_elements<Functor, Types, Real>(
      shared, index_low, count, element_at<typename Types::Master>(arguments.master, done),
      element_at<const typename Types::Gradient>(arguments.gradient, done),
      element_at<State>(arguments.states[0], done), element_at<State>(arguments.states[1], done),
      element_at<State>(arguments.states[2], done),
      element_at<typename Types::Copy>(arguments.copy, done));
}

}  // namespace detail

/// One step on all elements of `arguments`, in the calling thread; nothing at all when the step is
/// skipped. Every element is computed by itself, so any cut of a range gives the same bits.
/// InstructionSet is any type: of an anonymous namespace where objects compiled for different
/// instruction sets are linked together, so that they share no function.
template <class InstructionSet, ElementwiseOptimizer Functor, class Types>
void step_range(const StepArguments& arguments) {
  using Real = typename Types::Real;
  if (arguments.scalars->apply == 0) return;
  Functor functor;
  const bool by_value = arguments.device_functor == nullptr;
  std::memcpy(&functor, by_value ? arguments.functor.data() : arguments.device_functor,
              sizeof(Functor));
  const std::int64_t time = *arguments.time;
  detail::StepShared<Functor, Real> shared{functor.template coefficients<Real>(time),
                                           exact::round_to<Real>(arguments.scalars->coefficient),
                                           {}};
  if constexpr (!Types::stochastic) {
    detail::step_piece<Functor, Types, Real>(arguments, shared, 0, arguments.count);
    return;
  }
  constexpr Elements indices = Elements{1} << 32;  // with the same high word, hence the same keys
  for (Elements done = 0; done < arguments.count;) {
    const Elements canonical = arguments.canonical + done;
    const Elements left = arguments.count - done;
    const Elements same_high = indices - canonical % indices;
    const Elements count = same_high < left ? same_high : left;
    detail::fill_keys(shared.keys, arguments.seed, time, canonical);
    detail::step_piece<Functor, Types, Real>(arguments, shared, done, count);
    done += count;
  }
}

}  // namespace flatshard
