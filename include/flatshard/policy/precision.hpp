// Precision policies. The one question they answer: which dtype has each role?
#pragma once

#include <flatshard/ops/step.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <concepts>

namespace flatshard {

/// How new parameters are rounded to the master's dtype.
enum class Rounding { Nearest, Stochastic };

/// Whose rule moves the loss scale.
enum class LossScaling { Off, Torch, DeepSpeed, Static };

namespace precision {

/// One dtype everywhere, as FSDP without mixed precision. `State` and `Accumulate` may be float.
/// Optimizer arithmetic is fp32 all the same (fp64 for double).
template <class Element, class State = Element, class Accumulate = Element>
struct Full {
  using master = Element;
  using compute = Element;
  using reduce = Element;
  using accumulate = Accumulate;
  using state = State;
  static constexpr Rounding rounding = Rounding::Nearest;
  static constexpr LossScaling loss_scaling = LossScaling::Off;
};

/// fp32 master, bf16 compute and wire, sums in fp32 (FSDP with MixedPrecision). `Reduce` is the
/// dtype of the reduced gradient: float, or Bf16.
template <class Reduce>
struct Bf16MixedReducing {
  using master = float;
  using compute = Bf16;
  using reduce = Reduce;
  using accumulate = float;
  using state = float;
  static constexpr Rounding rounding = Rounding::Nearest;
  static constexpr LossScaling loss_scaling = LossScaling::Off;
};
using Bf16Mixed = Bf16MixedReducing<float>;  // gradients reduced to fp32

/// fp32 master whatever the load dtype, bf16 compute and reduced gradient, fp32 accumulation
/// (DeepSpeed bf16).
using DeepSpeedBf16 = Bf16MixedReducing<Bf16>;

/// fp32 master, fp16 compute, fp32 accumulation, loss scaling by `Rule`; `Reduce` is Half or float.
template <LossScaling Rule, class Reduce = Half>
struct Fp16MixedScaling {
  using master = float;
  using compute = Half;
  using reduce = Reduce;
  using accumulate = float;
  using state = float;
  static constexpr Rounding rounding = Rounding::Nearest;
  static constexpr LossScaling loss_scaling = Rule;
};
/// With the rule of torch.amp.GradScaler, gradients reduced to fp16.
using Fp16Mixed = Fp16MixedScaling<LossScaling::Torch>;

/// bf16 master without an fp32 copy, stochastic rounding; `State` is float or Bf16 (then rounded
/// stochastically from random streams of its own).
template <class State>
struct Bf16StochasticState {
  using master = Bf16;
  using compute = Bf16;
  using reduce = float;
  using accumulate = float;
  using state = State;
  static constexpr Rounding rounding = Rounding::Stochastic;
  static constexpr LossScaling loss_scaling = LossScaling::Off;
};
using Bf16Stochastic = Bf16StochasticState<float>;  // with fp32 states

}  // namespace precision

template <class Element>
concept HasADType = requires {
  detail::DTypeOf<Element>::value;
};
template <class Element>
concept HasAFloatingDType = HasADType<Element> && is_floating(dtype_of<Element>);

template <class Policy>
concept NamesItsMasterType = HasAFloatingDType<typename Policy::master>;
template <class Policy>
concept NamesItsComputeType = HasAFloatingDType<typename Policy::compute>;
template <class Policy>
concept NamesItsReduceType = HasAFloatingDType<typename Policy::reduce>;
template <class Policy>
concept NamesItsAccumulateType = HasAFloatingDType<typename Policy::accumulate>;
template <class Policy>
concept NamesItsStateType = HasAFloatingDType<typename Policy::state>;
template <class Policy>
concept SaysHowItRounds = requires {
  { Policy::rounding } -> std::same_as<const Rounding&>;
};
template <class Policy>
concept SaysHowItScalesTheLoss = requires {
  { Policy::loss_scaling } -> std::same_as<const LossScaling&>;
};

/// A type that names a dtype for each role.
template <class Policy>
concept PrecisionPolicy = NamesItsMasterType<Policy> && NamesItsComputeType<Policy> &&
    NamesItsReduceType<Policy> && NamesItsAccumulateType<Policy> && NamesItsStateType<Policy> &&
    SaysHowItRounds<Policy> && SaysHowItScalesTheLoss<Policy>;

/// The answers as a value, for the Plan.
struct PrecisionTraits {
  DType master = DType::Float32;      // of master weights
  DType compute = DType::Float32;     // also the dtype on the wire of a gather
  DType reduce = DType::Float32;      // of the reduced gradient, rounded once after the whole sum
  DType accumulate = DType::Float32;  // of the gradient shard that micro-steps add to
  DType state = DType::Float32;       // of optimizer states
  Rounding rounding = Rounding::Nearest;        // of new masters
  LossScaling loss_scaling = LossScaling::Off;  // whose rule
  friend constexpr bool operator==(const PrecisionTraits&, const PrecisionTraits&) = default;
};

/// The answers of a policy.
template <PrecisionPolicy Policy>
constexpr PrecisionTraits precision_traits() {
  return {dtype_of<typename Policy::master>,
          dtype_of<typename Policy::compute>,
          dtype_of<typename Policy::reduce>,
          dtype_of<typename Policy::accumulate>,
          dtype_of<typename Policy::state>,
          Policy::rounding,
          Policy::loss_scaling};
}

/// The optimizer step between these roles.
constexpr StepRow step_row(const PrecisionTraits& roles) {
  const bool stochastic = roles.rounding == Rounding::Stochastic && roles.master == DType::BFloat16;
  return {roles.master, roles.accumulate, roles.state, roles.compute, roles.master != roles.compute,
          stochastic};
}

static_assert(PrecisionPolicy<precision::Full<float>> && PrecisionPolicy<precision::Full<double>> &&
              PrecisionPolicy<precision::Full<Bf16>> && PrecisionPolicy<precision::Full<Half>> &&
              PrecisionPolicy<precision::Bf16Mixed> && PrecisionPolicy<precision::DeepSpeedBf16> &&
              PrecisionPolicy<precision::Fp16Mixed> && PrecisionPolicy<precision::Bf16Stochastic>);

}  // namespace flatshard
