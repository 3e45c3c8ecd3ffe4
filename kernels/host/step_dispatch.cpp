#include "step_kernels.hpp"

#include <flatshard/ops/host_steps.hpp>

namespace flatshard {
namespace {

const host::StepKernels& kernels_of(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::Avx512) return host::avx512::step_kernels;
  if (set == InstructionSet::Avx2) return host::avx2::step_kernels;
#endif
  static_cast<void>(set);
  return host::baseline::step_kernels;
}

}  // namespace

template <>
HostStep builtin_host_step<AdamW>(const StepRow& row, InstructionSet set) {
  return kernels_of(set).adamw(row);
}
template <>
HostStep builtin_host_step<SGD>(const StepRow& row, InstructionSet set) {
  return kernels_of(set).sgd(row);
}
template <>
HostStep builtin_host_step<Lion>(const StepRow& row, InstructionSet set) {
  return kernels_of(set).lion(row);
}
template <>
HostStep builtin_host_step<Adagrad>(const StepRow& row, InstructionSet set) {
  return kernels_of(set).adagrad(row);
}

template <>
HostStep builtin_host_step<AdamW>(const StepRow& row) {
  return builtin_host_step<AdamW>(row, best_instruction_set());
}
template <>
HostStep builtin_host_step<SGD>(const StepRow& row) {
  return builtin_host_step<SGD>(row, best_instruction_set());
}
template <>
HostStep builtin_host_step<Lion>(const StepRow& row) {
  return builtin_host_step<Lion>(row, best_instruction_set());
}
template <>
HostStep builtin_host_step<Adagrad>(const StepRow& row) {
  return builtin_host_step<Adagrad>(row, best_instruction_set());
}

}  // namespace flatshard
