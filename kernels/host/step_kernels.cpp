// Compiled once per instruction set, see block_kernels.cpp.
#include "step_kernels.hpp"

#include "step_blocks.hpp"
#include "step_copy.hpp"

#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

struct ThisInstructionSet;  // local to this object, and so is every template made with it

/// A loop for each row. By blocks, Adam takes 1.0 times as long as AdamW for fp32, 1.35 times for
/// bf16 (in the level-1 cache, AVX-512).
template <class Functor>
inline constexpr bool has_loop_per_row =
    std::is_same_v<Functor, AdamW> || std::is_same_v<Functor, SGD> ||
    std::is_same_v<Functor, Lion> || std::is_same_v<Functor, Adagrad>;

/// Not of fp16: a loop converts it in many instructions, a block in the processor's own. (AdamW
/// past the cache with an fp16 gradient and copy, one thread: 32 GB/s, by blocks 42.)
template <class Types>
inline constexpr bool is_faster_by_blocks = std::is_same_v<typename Types::Real, float> &&
                                            (std::is_same_v<typename Types::Master, Half> ||
                                             std::is_same_v<typename Types::Gradient, Half> ||
                                             std::is_same_v<typename Types::State, Half> ||
                                             std::is_same_v<typename Types::Copy, Half>);

template <class Functor, class Types>
constexpr HostStep step_for() {
  if constexpr (is_faster_by_blocks<Types>)
    return step_by_blocks<Functor, float>;
  else if constexpr (Types::writes_copy)
    return step_with_copy<Functor, Types>;
  else
    return step_range<ThisInstructionSet, Functor, Types>;
}

template <class Functor, class... Types>
HostStep find_step_by_rows(const StepRow& row, StepRowList<Types...>) {
  HostStep found = nullptr;
  ((Types::row() == row ? void(found = step_for<Functor, Types>()) : void()), ...);
  return found;
}

template <class Functor>
HostStep step_of(const StepRow& row) {
  if constexpr (has_loop_per_row<Functor>)
    return find_step_by_rows<Functor>(row, HostStepRows{});
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
