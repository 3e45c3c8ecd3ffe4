#include "step_kernels.hpp"

namespace flatshard {
namespace host {

const StepKernels& step_kernels(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::Avx512) return avx512::step_kernels;
  if (set == InstructionSet::Avx2) return avx2::step_kernels;
#endif
  static_cast<void>(set);
  return baseline::step_kernels;
}

}  // namespace host

template <>
HostStep builtin_host_step<AdamW>(const StepRow& row) {
  return host::step_kernels(best_instruction_set()).adamw(row);
}
template <>
HostStep builtin_host_step<SGD>(const StepRow& row) {
  return host::step_kernels(best_instruction_set()).sgd(row);
}
template <>
HostStep builtin_host_step<Lion>(const StepRow& row) {
  return host::step_kernels(best_instruction_set()).lion(row);
}

}  // namespace flatshard
