// The optimizer step on a GPU, for any functor: include this in a .cu file and say, at namespace
// scope,
//
//   const flatshard::cuda::RegisterStep<MyFunctor> my_step;
//
// and every Optimizer made of a MyFunctor runs on CUDA devices, in all rows of StepRows. To build
// fewer: RegisterStep<MyFunctor, StepRowList<StepTypes<float, float, float>>>. Flags of that file
// such as -fmad or --use_fast_math change no bit, as long as the functor rounds by core/exact.hpp.
#pragma once

#include <flatshard/ops/cuda_steps.hpp>
#include <flatshard/ops/step_rows.hpp>

#include "step_range.cuh"

namespace flatshard::cuda {

/// One pack of `Count` elements per thread: all streams by one access each, or, where a pack
/// reaches over an end of the range or the streams are aligned differently, element by element.
template <class Functor, class Types, int Count, int Blocks>
__global__ void __launch_bounds__(block_threads, Blocks)
    step_kernel(const StepRange<Functor, typename Types::Real>* __restrict__ ranges, int entries) {
  using Real = typename Types::Real;
  using Master = typename Types::Master;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  using Copy = typename Types::Copy;
  constexpr int states = state_count<Functor>;
  constexpr bool random = Types::stochastic;
  const auto& range =
      ranges[entry_of_block(entries, blockIdx.x, [&](int k) { return ranges[k].first_block; })];
  if (!range.applies) return;
  const Elements pack = (blockIdx.x - range.first_block) * block_threads + threadIdx.x;
  const Elements index = pack * Count - range.lead;
  auto* master = static_cast<Master*>(range.master);
  const auto* gradient = static_cast<const Gradient*>(range.gradient);
  State* state[max_optimizer_states];
  for (int k = 0; k < max_optimizer_states; ++k) state[k] = static_cast<State*>(range.states[k]);
  auto* copy = static_cast<Copy*>(range.copy);
  if (!range.aligned || !is_whole<Count>(index, range.count)) {
#pragma unroll 1
    for (int i = 0; i < Count; ++i)
      if (index + i >= 0 && index + i < range.count)
        flatshard::detail::step_element<Functor, Types, Real>(range.shared, range.index_low,
                                                              index + i, master, gradient, state[0],
                                                              state[1], state[2], copy);
    return;
  }

  const auto master_pack = load_pack<Count>(master, index);
  const auto gradient_pack = load_pack<Count>(gradient, index);
  Pack<State, Count> state_packs[max_optimizer_states];
#pragma unroll
  for (int k = 0; k < states; ++k) state_packs[k] = load_pack<Count>(state[k], index);

  const auto coefficients = range.shared.coefficients;
  const Real multiplier = range.shared.gradient_multiplier;
  auto parameters = convert_pack<Real>(master_pack.at);
  const auto gradients = convert_pack<Real>(gradient_pack.at);
  Pack<Real, Count> values[max_optimizer_states];
#pragma unroll
  for (int k = 0; k < states; ++k) values[k] = convert_pack<Real>(state_packs[k].at);
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    Real element[max_optimizer_states] = {};
#pragma unroll
    for (int k = 0; k < states; ++k) element[k] = values[k].at[i];
    Functor::update(coefficients, parameters.at[i], exact::mul(gradients.at[i], multiplier),
                    element);
#pragma unroll
    for (int k = 0; k < states; ++k) values[k].at[i] = element[k];
  }

  const std::uint32_t index_low = range.index_low + static_cast<std::uint32_t>(index);
  const auto* keys = range.shared.keys;
  store_pack(detail::round_pack<Master, random>(parameters.at, keys[0], index_low), master, index);
#pragma unroll
  for (int k = 0; k < states; ++k)
    store_pack(detail::round_pack<State, random>(values[k].at, keys[1 + k], index_low), state[k],
               index);
  if constexpr (Types::writes_copy) store_pack(convert_pack<Copy>(parameters.at), copy, index);
}

/// Elements per thread: a 16-byte access to the widest of the streams.
template <class Types>
inline constexpr int step_pack = [] {
  using Copy = std::conditional_t<Types::writes_copy, typename Types::Copy, typename Types::Master>;
  return pack_elements<typename Types::Master, typename Types::Gradient, typename Types::State,
                       Copy>;
}();

namespace detail {

/// Cuts ranges where the high word of the canonical index changes, and with it the keys.
template <class Types, class Take>
void for_each_part(const StepArguments& whole, const Take& take) {
  constexpr Elements indices = Elements{1} << 32;
  const Bytes state_bytes = size_of(whole.row.state);
  for (Elements done = 0; done < whole.count;) {
    const Elements same_high = indices - (whole.canonical + done) % indices;
    const Elements left = whole.count - done;
    StepArguments part = whole;
    part.count = Types::stochastic && same_high < left ? same_high : left;
    part.canonical += done;
    part.master = static_cast<typename Types::Master*>(whole.master) + done;
    part.gradient = static_cast<const typename Types::Gradient*>(whole.gradient) + done;
    for (void*& state : part.states)
      if (state != nullptr) state = static_cast<std::byte*>(state) + done * state_bytes;
    if constexpr (Types::writes_copy)
      part.copy = static_cast<typename Types::Copy*>(whole.copy) + done;
    take(part);
    done += part.count;
  }
}

template <class Functor, class Types, int Count>
StepPlace place_of(const StepArguments& part, Elements first_block) {
  StepPlace place{part, first_block, 0, true};
  const auto see = [&](const auto* begin) {
    place.aligned = place.aligned && lead_of<Count>(begin) == place.lead;
  };
  place.lead = lead_of<Count>(static_cast<const typename Types::Master*>(part.master));
  see(static_cast<const typename Types::Gradient*>(part.gradient));
  for (int k = 0; k < state_count<Functor>; ++k)
    see(static_cast<const typename Types::State*>(part.states[static_cast<std::size_t>(k)]));
  if constexpr (Types::writes_copy) see(static_cast<const typename Types::Copy*>(part.copy));
  return place;
}

}  // namespace detail

/// The CudaStep of a functor and a row.
template <class Functor, class Types, int Count = step_pack<Types>, int Blocks = 4>
void launch_step(std::span<const StepArguments> arguments, void* scratch, void* native) {
  using Range = StepRange<Functor, typename Types::Real>;
  static_assert(static_cast<Bytes>(sizeof(Range)) <= cuda_step_part_bytes,
                "the coefficients of an optimizer must fit 120 bytes");
  auto* ranges = static_cast<Range*>(scratch);
  const auto stream = static_cast<cudaStream_t>(native);
  StepBatch batch;
  batch.count = 0;
  int entries = 0;
  Elements blocks = 0;
  const auto prepare = [&] {
    if (batch.count == 0) return;
    prepare_step<Functor, typename Types::Real>
        <<<1, StepBatch::most, 0, stream>>>(batch, ranges + entries - batch.count);
    batch.count = 0;
  };
  for (const StepArguments& whole : arguments)
    detail::for_each_part<Types>(whole, [&](const StepArguments& part) {
      const StepPlace place = detail::place_of<Functor, Types, Count>(part, blocks);
      batch.places[batch.count++] = place;
      ++entries;
      blocks += blocks_for(packs_of<Count>(part.count, place.lead));
      if (batch.count == StepBatch::most) prepare();
    });
  prepare();
  if (blocks > 0)
    step_kernel<Functor, Types, Count, Blocks>
        <<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(ranges, entries);
}

namespace detail {
template <class Functor, class... Types>
CudaStep find_step(const StepRow& row, StepRowList<Types...>) {
  CudaStep found = nullptr;
  ((Types::row() == row ? void(found = launch_step<Functor, Types>) : void()), ...);
  return found;
}
}  // namespace detail

/// The step of `row`, instantiated here; nullptr when it is not in Rows.
template <ElementwiseOptimizer Functor, class Rows = StepRows>
CudaStep find_cuda_step(const StepRow& row) {
  return detail::find_step<Functor>(row, Rows{});
}

/// Makes the step known to every Optimizer of this functor.
template <ElementwiseOptimizer Functor, class Rows = StepRows>
struct RegisterStep {
  RegisterStep() { register_cuda_step(typeid(Functor), find_cuda_step<Functor, Rows>); }
};

}  // namespace flatshard::cuda
