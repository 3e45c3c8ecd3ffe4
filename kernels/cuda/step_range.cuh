// What the blocks of a step on a range are given, and how they round. Part of step.cuh.
#pragma once

#include <flatshard/ops/step_kernel.hpp>

#include "pack.cuh"

namespace flatshard::cuda {

/// One range as its blocks see it, in device memory.
template <class Functor, class Real>
struct StepRange {
  void* master;
  const void* gradient;
  void* states[max_optimizer_states];
  void* copy;
  Elements count;
  Elements first_block;
  std::uint32_t index_low;  // of the canonical index of the first element
  int lead;                 // see pack.cuh
  bool aligned;             // all pointers to the same place in their packs
  bool applies;
  flatshard::detail::StepShared<Functor, Real> shared;
};

/// Where the blocks of a range begin.
struct StepPlace {
  StepArguments arguments;
  Elements first_block;
  int lead;
  bool aligned;
};

/// As many as travel as a kernel's parameters.
struct StepBatch {
  static constexpr int most = 16;
  StepPlace places[most];
  int count;
};

/// Forms what all elements of a range share: in double, by one thread of one block, so that the
/// step itself is left with what an element needs.
template <class Functor, class Real>
__global__ void prepare_step(const __grid_constant__ StepBatch batch,
                             StepRange<Functor, Real>* ranges) {
  const int k = static_cast<int>(threadIdx.x);
  if (k >= batch.count) return;
  const StepPlace& place = batch.places[k];
  const StepArguments& arguments = place.arguments;
  StepRange<Functor, Real>& range = ranges[k];
  range.master = arguments.master;
  range.gradient = arguments.gradient;
  for (int state = 0; state < max_optimizer_states; ++state)
    range.states[state] = arguments.states.data()[state];
  range.copy = arguments.copy;
  range.count = arguments.count;
  range.first_block = place.first_block;
  range.index_low = static_cast<std::uint32_t>(arguments.canonical & Elements{0xffffffff});
  range.lead = place.lead;
  range.aligned = place.aligned;
  range.applies = arguments.scalars->apply != 0;
  Functor functor;
  const bool by_value = arguments.device_functor == nullptr;
  memcpy(&functor, by_value ? arguments.functor.data() : arguments.device_functor, sizeof(Functor));
  const std::int64_t time = *arguments.time;
  range.shared.coefficients = functor.template coefficients<Real>(time);
  range.shared.gradient_multiplier = exact::round_to<Real>(arguments.scalars->coefficient);
  flatshard::detail::fill_keys(range.shared.keys, arguments.seed, time, arguments.canonical);
}

namespace detail {

/// random_word(key, index_low) with `shift` == key.high * 0xac4c1b51, which a multiply-add takes
/// up: integer operations are what stochastic rounding costs.
FLATSHARD_INLINE __device__ std::uint32_t shifted_word(RandomKey key, std::uint32_t shift,
                                                       std::uint32_t index_low) {
  std::uint32_t x = index_low ^ key.low;
  x ^= x >> 17;
  x *= 0xed5ad4bbU;
  x ^= x >> 11;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(x) : "r"(x), "r"(0xac4c1b51U), "r"(shift));
  x ^= x >> 15;
  x *= 0x31848babU;
  return x ^ (x >> 14);
}

/// stochastic_bf16(value, word) in the upper half.
FLATSHARD_INLINE __device__ std::uint32_t stochastic_upper(float value, std::uint32_t word) {
  const std::uint32_t rounded = bit_cast<std::uint32_t>(value) + (word >> 16);
  return value != value ? 0x7fff0000U : rounded;
}

/// Rounded to nearest, or with the words of the elements from `index` on for a stochastic bf16.
template <class Element, bool Stochastic, int Count, class Real>
FLATSHARD_INLINE __device__ Pack<Element, Count> round_pack(const Real (&values)[Count],
                                                            RandomKey key, std::uint32_t index) {
  if constexpr (Stochastic && std::is_same_v<Element, Bf16>) {
    static_assert(Count % 2 == 0);
    const std::uint32_t shift = key.high * 0xac4c1b51U;
    std::uint32_t pairs[Count / 2];
#pragma unroll
    for (int i = 0; i < Count; i += 2) {
      const auto at = index + static_cast<std::uint32_t>(i);
      const std::uint32_t first = stochastic_upper(values[i], shifted_word(key, shift, at));
      const std::uint32_t second =
          stochastic_upper(values[i + 1], shifted_word(key, shift, at + 1));
      pairs[i / 2] = __byte_perm(first, second, 0x7632);
    }
    Pack<Element, Count> pack;
    __builtin_memcpy(pack.at, pairs, sizeof pairs);
    return pack;
  } else {
    return convert_pack<Element>(values);
  }
}

}  // namespace detail

}  // namespace flatshard::cuda
