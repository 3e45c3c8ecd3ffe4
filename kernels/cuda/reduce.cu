// Sums over contributions in the order of ops/reduction_tree.hpp, and accumulation.
#include <flatshard/ops/reduction_tree.hpp>

#include "dtype_pack.cuh"
#include "launchers.hpp"

namespace flatshard::cuda {
namespace {

constexpr int leaves = inline_sources;  // contributions that are loaded at once
constexpr int depth = 32;  // of the stack of sums of eight: more contributions than there can be

struct ReduceArguments {
  const void* inline_table[inline_sources];
  const void* const* table;  // of all sources, in device memory, when they are more
  int sources;
  bool aligned;  // all sources and the destination to the same place in their packs
  void* destination;
  DType result;
  Elements count;
  int lead;
};

/// Pairs of neighbours, the odd one carried up: T of the first `count` leaves, in leaf 0.
template <class Compute, int Count>
FLATSHARD_INLINE __device__ void sum_leaves(Compute (&values)[leaves][Count], int count) {
#pragma unroll
  for (int step = 1; step < leaves; step *= 2) {
#pragma unroll
    for (int k = 0; k + step < leaves; k += 2 * step)
      if (k + step < count)
#pragma unroll
        for (int i = 0; i < Count; ++i)
          values[k][i] = exact::add(values[k][i], values[k + step][i]);
  }
}

/// T of the sources from `first` on, at most eight of them; `Many`: they are in the table.
template <class Element, bool Many, class Compute, int Count>
FLATSHARD_INLINE __device__ void sum_eight(const ReduceArguments& arguments, int first,
                                           Elements index, Compute (&sum)[Count]) {
  const int left = arguments.sources - first;
  const Element* sources[leaves] = {};
#pragma unroll
  for (int k = 0; k < leaves; ++k)
    if (k < left)
      sources[k] = static_cast<const Element*>(Many ? arguments.table[first + k]
                                                    : arguments.inline_table[k]);
  // Words, not elements: taken apart where they are loaded, they would wait for one another.
  using Word = PackWord<Element, Count>;
  Word words[leaves] = {};
  if (arguments.aligned && is_whole<Count>(index, arguments.count)) {
#pragma unroll
    for (int k = 0; k < leaves; ++k)
      if (k < left) words[k] = *reinterpret_cast<const Word*>(sources[k] + index);
  } else {
#pragma unroll
    for (int k = 0; k < leaves; ++k)
      if (k < left)
        words[k] = bit_cast<Word>(gather_pack<Count>(sources[k], index, arguments.count));
  }
  Compute values[leaves][Count];
#pragma unroll
  for (int k = 0; k < leaves; ++k) {
    const auto converted = convert_pack<Compute>(bit_cast<Pack<Element, Count>>(words[k]).at);
#pragma unroll
    for (int i = 0; i < Count; ++i) values[k][i] = converted.at[i];
  }
  sum_leaves(values, left);
#pragma unroll
  for (int i = 0; i < Count; ++i) sum[i] = values[0][i];
}

/// Sums of eight wait on a stack for their equals.
template <class Element, class Compute, int Count>
__device__ void sum_all(const ReduceArguments& arguments, Elements index, Compute (&sum)[Count]) {
  Compute stack[depth][Count];
  int size = 0;
  const auto push = [&] {
    for (int i = 0; i < Count; ++i) stack[size][i] = sum[i];
    ++size;
  };
  const auto merge = [&] {
    --size;
    for (int i = 0; i < Count; ++i)
      stack[size - 1][i] = exact::add(stack[size - 1][i], stack[size][i]);
  };
  int taken = 0;
  for (int first = 0; first < arguments.sources; first += leaves) {
    sum_eight<Element, true>(arguments, first, index, sum);
    push();
    for (int merges = merges_after(++taken); merges > 0; --merges) merge();
  }
  while (size > 1) merge();
  for (int i = 0; i < Count; ++i) sum[i] = stack[0][i];
}

template <class Element>
using ComputeOf = std::conditional_t<std::is_same_v<Element, double>, double, float>;

/// Elements per thread: 16 bytes of a source, eight elements at most.
template <class Element>
constexpr int reduce_pack = pack_elements<Element> < 8 ? pack_elements<Element> : 8;

template <class Element, bool Many>
__global__ void __launch_bounds__(block_threads)
    reduce_kernel(const __grid_constant__ ReduceArguments arguments) {
  using Compute = ComputeOf<Element>;
  constexpr int count = reduce_pack<Element>;
  const Elements index =
      (Elements{blockIdx.x} * block_threads + threadIdx.x) * count - arguments.lead;
  if (index >= arguments.count) return;
  Compute sum[count];
  if constexpr (Many)
    sum_all<Element>(arguments, index, sum);
  else
    sum_eight<Element, false>(arguments, 0, index, sum);
  store_as(arguments.result, sum, arguments.destination, index, arguments.count);
}

template <class Element>
void launch_reduce_of(ReduceArguments& arguments, std::span<const void* const> sources,
                      cudaStream_t stream) {
  constexpr int count = reduce_pack<Element>;
  const auto place = reinterpret_cast<std::uintptr_t>(arguments.destination);
  arguments.lead =
      static_cast<int>(place / static_cast<std::uintptr_t>(size_of(arguments.result)) % count);
  arguments.aligned = true;
  for (const void* source : sources)
    if (lead_of<count>(static_cast<const Element*>(source)) != arguments.lead)
      arguments.aligned = false;
  const auto blocks =
      static_cast<unsigned>(blocks_for(packs_of<count>(arguments.count, arguments.lead)));
  if (blocks == 0) return;
  if (arguments.table == nullptr)
    reduce_kernel<Element, false><<<blocks, block_threads, 0, stream>>>(arguments);
  else
    reduce_kernel<Element, true><<<blocks, block_threads, 0, stream>>>(arguments);
}

template <class Accumulator>
__global__ void __launch_bounds__(block_threads)
    add_kernel(const void* addend, DType addend_dtype, Accumulator* accumulator, Elements count,
               int lead) {
  using Compute = ComputeOf<Accumulator>;
  constexpr int pack = 16 / int{sizeof(Compute)};
  const Elements index = (Elements{blockIdx.x} * block_threads + threadIdx.x) * pack - lead;
  if (index >= count) return;
  Compute addends[pack], sums[pack];
  load_as(addend_dtype, addend, index, count, addends);
  const bool whole = is_whole<pack>(index, count);
  const auto before =
      whole ? load_pack<pack>(accumulator, index) : gather_pack<pack>(accumulator, index, count);
#pragma unroll
  for (int i = 0; i < pack; ++i) sums[i] = exact::add(convert<Compute>(before.at[i]), addends[i]);
  const auto after = convert_pack<Accumulator>(sums);
  if (whole)
    store_pack(after, accumulator, index);
  else
    scatter_pack(after, accumulator, index, count);
}

template <class Accumulator>
void launch_add_to(const void* addend, DType addend_dtype, void* accumulator, Elements count,
                   cudaStream_t stream) {
  constexpr int pack = std::is_same_v<Accumulator, double> ? 2 : 4;
  auto* sums = static_cast<Accumulator*>(accumulator);
  const int lead = lead_of<pack>(sums);
  const auto blocks = static_cast<unsigned>(blocks_for(packs_of<pack>(count, lead)));
  if (blocks > 0)
    add_kernel<<<blocks, block_threads, 0, stream>>>(addend, addend_dtype, sums, count, lead);
}

}  // namespace

void launch_reduce(std::span<const void* const> sources, const void* const* table,
                   DType contribution, void* destination, DType result, Elements count,
                   cudaStream_t stream) {
  ReduceArguments arguments{};
  arguments.table = table;
  if (table == nullptr)
    for (std::size_t k = 0; k < sources.size(); ++k) arguments.inline_table[k] = sources[k];
  arguments.sources = static_cast<int>(sources.size());
  arguments.destination = destination;
  arguments.result = result;
  arguments.count = count;
  constexpr decltype(&launch_reduce_of<float>) launches[] = {
      launch_reduce_of<double>, launch_reduce_of<float>,      launch_reduce_of<Bf16>,
      launch_reduce_of<Half>,   launch_reduce_of<Float8E4M3>, launch_reduce_of<Float8E5M2>};
  launches[static_cast<std::size_t>(contribution)](arguments, sources, stream);
}

void launch_add(const void* addend, DType addend_dtype, void* accumulator, DType accumulator_dtype,
                Elements count, cudaStream_t stream) {
  constexpr decltype(&launch_add_to<float>) launches[] = {
      launch_add_to<double>, launch_add_to<float>,      launch_add_to<Bf16>,
      launch_add_to<Half>,   launch_add_to<Float8E4M3>, launch_add_to<Float8E5M2>};
  launches[static_cast<std::size_t>(accumulator_dtype)](addend, addend_dtype, accumulator, count,
                                                        stream);
}

}  // namespace flatshard::cuda
