#include "kernels.hpp"

#include "tables.hpp"

namespace train_gpt {

using flatshard::InstructionSet;

#if defined(TRAIN_GPT_X86_KERNELS)

template <>
const Kernels<float>& kernels<float>(InstructionSet set) {
  if (set == InstructionSet::Avx512) return avx512_float();
  return set == InstructionSet::Avx2 ? avx2_float() : baseline_float();
}

template <>
const Kernels<double>& kernels<double>(InstructionSet set) {
  if (set == InstructionSet::Avx512) return avx512_double();
  return set == InstructionSet::Avx2 ? avx2_double() : baseline_double();
}

#else

template <>
const Kernels<float>& kernels<float>(InstructionSet) {
  return baseline_float();
}

template <>
const Kernels<double>& kernels<double>(InstructionSet) {
  return baseline_double();
}

#endif

}  // namespace train_gpt
