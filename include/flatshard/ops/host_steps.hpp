// The steps of the library's own optimizers, each instruction set by itself: for tests and
// benchmarks. Everybody else takes builtin_host_step(row) or Optimizer::host_step.
#pragma once

#include <flatshard/ops/instruction_set.hpp>
#include <flatshard/ops/optimizer.hpp>

namespace flatshard {

/// nullptr when the row is not in StepRows; the set must be available.
template <class Functor>
HostStep builtin_host_step(const StepRow& row, InstructionSet set);
template <>
HostStep builtin_host_step<AdamW>(const StepRow& row, InstructionSet set);
template <>
HostStep builtin_host_step<SGD>(const StepRow& row, InstructionSet set);
template <>
HostStep builtin_host_step<Lion>(const StepRow& row, InstructionSet set);
template <>
HostStep builtin_host_step<Adagrad>(const StepRow& row, InstructionSet set);

}  // namespace flatshard
