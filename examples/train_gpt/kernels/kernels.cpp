#include "kernels.hpp"

#include "tables.hpp"

namespace train_gpt {

#if defined(TRAIN_GPT_X86_KERNELS)

bool available(InstructionSet set) {
  if (set == InstructionSet::baseline) return true;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (set == InstructionSet::avx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

template <>
const Kernels<float>& kernels<float>(InstructionSet set) {
  if (set == InstructionSet::avx512) return avx512_float();
  return set == InstructionSet::avx2 ? avx2_float() : baseline_float();
}

template <>
const Kernels<double>& kernels<double>(InstructionSet set) {
  if (set == InstructionSet::avx512) return avx512_double();
  return set == InstructionSet::avx2 ? avx2_double() : baseline_double();
}

#else

bool available(InstructionSet set) { return set == InstructionSet::baseline; }

template <>
const Kernels<float>& kernels<float>(InstructionSet) {
  return baseline_float();
}

template <>
const Kernels<double>& kernels<double>(InstructionSet) {
  return baseline_double();
}

#endif

InstructionSet best_instruction_set() {
  if (available(InstructionSet::avx512)) return InstructionSet::avx512;
  return available(InstructionSet::avx2) ? InstructionSet::avx2 : InstructionSet::baseline;
}

}  // namespace train_gpt
