// The instruction sets that host kernels are compiled for. Which one runs is decided at run time
// and changes no bit of any result.
#pragma once

#include <string_view>

namespace flatshard {

/// Baseline: what every processor of the architecture has (on x86-64 without fused multiply-add,
/// which is then emulated: exact, and slow). Avx2: with fma and f16c. Avx512: f, bw, dq, vl.
enum class InstructionSet { Baseline, Avx2, Avx512 };

/// "baseline", "avx2", "avx512".
std::string_view name_of(InstructionSet set);
/// True if this processor has the set and this build has kernels for it.
bool is_available(InstructionSet set);
/// The largest available set, or the one that the environment variable FLATSHARD_INSTRUCTION_SET
/// names (read once). Throws UsageError when that is unknown or not available.
InstructionSet best_instruction_set();

}  // namespace flatshard
