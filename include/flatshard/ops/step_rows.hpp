// The rows of storage types for which an optimizer step is built: one list, read by the library's
// kernels and by user functors alike.
#pragma once

#include <flatshard/ops/step_kernel.hpp>

namespace flatshard {

template <class... Types>
struct StepRowList {};

/// In the order of the precision table of policy/precision.hpp.
using StepRows = StepRowList<
    // master, gradient, state [, copy [, stochastic]]
    StepTypes<double, double, double>,            // Full<double>
    StepTypes<float, float, float>,               // Full<float>
    StepTypes<Bf16, Bf16, Bf16>,                  // Full<bf16>
    StepTypes<Bf16, Bf16, float>,                 //   fp32 state
    StepTypes<Bf16, float, Bf16>,                 //   fp32 accumulation
    StepTypes<Bf16, float, float>,                //   both
    StepTypes<Half, Half, Half>,                  // Full<fp16>
    StepTypes<Half, Half, float>,                 //   fp32 state
    StepTypes<Half, float, Half>,                 //   fp32 accumulation
    StepTypes<Half, float, float>,                //   both
    StepTypes<float, float, float, Bf16>,         // fp32 master, bf16 compute
    StepTypes<float, float, float, Half>,         // fp32 master, fp16 compute
    StepTypes<double, double, double, float>,     // Full<double>, a parameter of another dtype
    StepTypes<double, double, double, Bf16>,      //
    StepTypes<double, double, double, Half>,      //
    StepTypes<Bf16, float, float, NoCopy, true>,  // stochastic bf16
    StepTypes<Bf16, float, Bf16, NoCopy, true>>;  //   bf16 state

/// Rows that only the host's steps have: the gradient as a 16-bit wire delivers it. It is widened,
/// which is exact, as it is read: the bits are those of the row with an fp32 gradient.
using NarrowGradientRows = StepRowList<StepTypes<float, Bf16, float, Bf16>,   // bf16 compute
                                       StepTypes<float, Half, float, Half>>;  // fp16 compute

namespace detail {

template <class... Types, class... Others>
StepRowList<Types..., Others...> joined(StepRowList<Types...>, StepRowList<Others...>);

template <class InstructionSet, class Functor, class... Types>
HostStep find_host_step(const StepRow& row, StepRowList<Types...>) {
  HostStep found = nullptr;
  ((Types::row() == row ? void(found = step_range<InstructionSet, Functor, Types>) : void()), ...);
  return found;
}

}  // namespace detail

/// All rows of the host's steps.
using HostStepRows = decltype(detail::joined(StepRows{}, NarrowGradientRows{}));

/// The step of `row`, instantiated here with everything it calls; nullptr when it is not in
/// HostStepRows. InstructionSet: see step_range.
template <class InstructionSet, ElementwiseOptimizer Functor>
HostStep find_host_step(const StepRow& row) {
  return detail::find_host_step<InstructionSet, Functor>(row, HostStepRows{});
}

}  // namespace flatshard
