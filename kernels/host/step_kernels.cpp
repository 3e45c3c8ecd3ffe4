// Compiled once per instruction set, see block_kernels.cpp.
#include "step_kernels.hpp"

#include "step_blocks.hpp"

#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

struct ThisInstructionSet;  // local to this object, and so is every template made with it

/// A loop for each row. By blocks, Adam takes 1.0 times as long as AdamW for fp32, 1.35 times for
/// bf16, and a third for fp16 (in the level-1 cache, AVX-512).
template <class Functor>
inline constexpr bool has_loop_per_row =
    std::is_same_v<Functor, AdamW> || std::is_same_v<Functor, SGD> ||
    std::is_same_v<Functor, Lion> || std::is_same_v<Functor, Adagrad>;

template <class Functor>
HostStep step_of(const StepRow& row) {
  if constexpr (has_loop_per_row<Functor>)
    return find_host_step<ThisInstructionSet, Functor>(row);
  else
    return find_step_by_blocks<Functor>(row);
}

template <class... Functors>
constexpr StepKernels steps_of(OptimizerList<Functors...>) {
  return {{step_of<Functors>...}};
}

}  // namespace

const StepKernels step_kernels = steps_of(BuiltinOptimizers{});

}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
