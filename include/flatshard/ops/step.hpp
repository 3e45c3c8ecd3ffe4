// What one optimizer step on a range of elements is given: the contract between the engine, the
// optimizers' functors and the kernels of every device.
#pragma once

#include <flatshard/config.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace flatshard {

/// Storage dtypes of one step kernel. Arithmetic is fp32 (fp64 where the master is fp64).
struct StepRow {
  DType master;      // of the parameter
  DType gradient;    // of the accumulated gradient
  DType state;       // of every optimizer state
  DType copy;        // of the compute copy; == master and writes_copy == false when there is none
  bool writes_copy;  // the new parameter is also stored, rounded to nearest, as `copy`
  bool stochastic;   // bf16 master (and bf16 states) round stochastically
  FLATSHARD_INLINE friend constexpr bool operator==(const StepRow&, const StepRow&) = default;
};

/// The most states an element may have.
inline constexpr int max_optimizer_states = 3;
/// The most bytes a functor may have.
inline constexpr std::size_t max_functor_bytes = 96;

/// What the device decided for this step; lives in device memory.
struct StepScalars {
  double coefficient;  // gradient multiplier: clip / (divisor * loss scale), rounded once to float
  std::int64_t apply;  // 0: this step is skipped, nothing may change
};

/// One contiguous range of a shard. Pointers are to its first element; all ranges have `count`
/// elements. The functor (hyper-parameters of the range's group) travels by value.
struct StepArguments {
  void* master;                                    // read and written
  const void* gradient;                            // sum over all contributions, not averaged
  std::array<void*, max_optimizer_states> states;  // as many as the functor has
  void* copy;                                      // or nullptr
  Elements count;                                  // elements
  Elements canonical;          // canonical index of the first element (keys stochastic rounding)
  const StepScalars* scalars;  // device memory
  const std::int64_t* time;    // device memory: number of this update, 1 for the first
  std::uint64_t seed;          // of stochastic rounding
  StepRow row;                 // dtypes behind the pointers: a device may cut the range in parts
  bool copy_past_cache;        // a hint: the copy would not stay in the host's cache. Set by the
                               // host's kernels alone
  const std::byte* device_functor;  // the functor's bytes in device memory, read when the step
                                    // runs; null: `functor`
  /// The functor's bytes.
  alignas(8) std::array<std::byte, max_functor_bytes> functor;
};

/// Runs the step for all `count` elements in the calling thread.
using HostStep = void (*)(const StepArguments& arguments);

/// Enqueues the step for all ranges, which do not overlap, on a cudaStream_t. `scratch` is
/// cuda_step_scratch(ranges) bytes of device memory, in use until the stream has run the step.
using CudaStep = void (*)(std::span<const StepArguments> ranges, void* scratch, void* stream);

/// Of device memory, for each part of a range; a range is cut where the high words of canonical
/// indices change.
inline constexpr Bytes cuda_step_part_bytes = 256;
/// Bytes of device memory that a CudaStep of these ranges needs.
constexpr Bytes cuda_step_scratch(std::span<const StepArguments> ranges) {
  Elements parts = 0;
  for (const StepArguments& range : ranges) parts += (range.count >> 32) + 2;
  return parts * cuda_step_part_bytes;
}

/// One functor's step for one row, per kind of device; null where none is built.
struct StepFunctions {
  HostStep host = nullptr;  // for host memory
  CudaStep cuda = nullptr;  // for device memory

  /// None.
  constexpr StepFunctions() = default;
  /// For the host alone.
  constexpr StepFunctions(HostStep function) : host(function) {}  // NOLINT: implicit by design
  /// For CUDA alone.
  constexpr StepFunctions(CudaStep function) : cuda(function) {}  // NOLINT: implicit by design
};

}  // namespace flatshard
