#include <flatshard/core/error.hpp>
#include <flatshard/ops/instruction_set.hpp>

#include <fmt/format.h>

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace flatshard {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports asks the operating system too (does it save the registers?); clang 14 does
// not know its name for f16c.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

constexpr const char* variable = "FLATSHARD_INSTRUCTION_SET";

InstructionSet largest_available() {
  if (has_avx512()) return InstructionSet::Avx512;
  return has_avx2() ? InstructionSet::Avx2 : InstructionSet::Baseline;
}

InstructionSet named(std::string_view name) {
  for (auto set : {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512})
    if (name == name_of(set) && is_available(set)) return set;
  throw UsageError(fmt::format("environment variable {}: this processor has no \"{}\"; the best it "
                               "has is {}",
                               variable, name, name_of(largest_available())),
                   {__FILE__, __LINE__});
}

}  // namespace

std::string_view name_of(InstructionSet set) {
  if (set == InstructionSet::Avx512) return "avx512";
  return set == InstructionSet::Avx2 ? "avx2" : "baseline";
}

bool is_available(InstructionSet set) {
  if (set == InstructionSet::Avx512) return has_avx512();
  return set == InstructionSet::Avx2 ? has_avx2() : true;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = [] {
    const char* name = std::getenv(variable);
    return name == nullptr || *name == '\0' ? largest_available() : named(name);
  }();
  return best;
}

}  // namespace flatshard
