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

namespace detail {

HostStep builtin_host_step(std::size_t place, const StepRow& row, InstructionSet set) {
  return kernels_of(set).find[place](row);
}

HostStep builtin_host_step(std::size_t place, const StepRow& row) {
  return builtin_host_step(place, row, best_instruction_set());
}

}  // namespace detail
}  // namespace flatshard
