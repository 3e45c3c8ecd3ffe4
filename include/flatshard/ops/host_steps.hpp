// The steps of the library's own optimizers, each instruction set by itself: for tests and
// benchmarks. Everybody else takes builtin_host_step(row) or Optimizer::host_step.
#pragma once

#include <flatshard/ops/instruction_set.hpp>
#include <flatshard/ops/optimizer.hpp>

namespace flatshard {

namespace detail {
/// Of the functor at a place of BuiltinOptimizers. Defined in kernels/host.
HostStep builtin_host_step(std::size_t place, const StepRow& row, InstructionSet set);
}  // namespace detail

/// nullptr when the row is not in StepRows; the set must be available.
template <class Functor>
HostStep builtin_host_step(const StepRow& row, InstructionSet set) {
  static_assert(is_builtin_optimizer<Functor>);
  return detail::builtin_host_step(detail::place_of<Functor>(BuiltinOptimizers{}), row, set);
}

}  // namespace flatshard
