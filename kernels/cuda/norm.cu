// Sums of squares and largest magnitudes over the norm's tree. A block takes an aligned piece of a
// node and leaves its value; a second kernel merges 1024 of those a block, and its last block to
// finish the node's. Which block that is changes nothing: the tree is fixed. Pieces are small, so
// that many blocks read while others merge: with 32 KB a block 0.93 of the copy's bandwidth.
#include "launchers.hpp"
#include "norm_tree.cuh"
#include "pack.cuh"

namespace flatshard::cuda {
namespace {

template <class Element>
constexpr int pack_of = pack_elements<Element>;
/// Packs per thread, for at least 8 elements; a tile is a warp's packs side by side.
constexpr int tiles_of(Bytes element_bytes) {
  return element_bytes == 8 ? 4 : (element_bytes == 1 ? 1 : 2);
}
constexpr Elements elements_of_block(Bytes element_bytes) {
  return Elements{block_threads} * tiles_of(element_bytes) * (16 / element_bytes);
}
template <class Element>
constexpr Elements block_elements = elements_of_block(sizeof(Element));

/// The tree over elements [begin, begin + block_elements) of a node, absent ones counting as zero.
template <class Form, class Element>
__device__ double merge_elements(const Element* node, Elements begin, Elements count) {
  constexpr int pack = pack_of<Element>;
  constexpr int tiles = tiles_of(sizeof(Element));
  const int warp = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const Elements first = begin + (Elements{warp} * tiles * lanes + lane) * pack;
  constexpr Elements stride = Elements{lanes} * pack;
  const bool aligned = reinterpret_cast<std::uintptr_t>(node + begin) % 16 == 0;
  Pack<Element, pack> packs[tiles];
  if (aligned && begin + block_elements<Element> <= count) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) packs[t] = load_pack<pack>(node, first + t * stride);
  } else {
#pragma unroll
    for (int t = 0; t < tiles; ++t) packs[t] = gather_pack<pack>(node, first + t * stride, count);
  }
  double tile[tiles];
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    double leaf[pack];
#pragma unroll
    for (int i = 0; i < pack; ++i) leaf[i] = Form::leaf(to_double(packs[t].at[i]));
    tile[t] = merge_neighbours<Form>(leaf);
  }
  return merge_warps<Form>(merge_tiles<Form>(tile));
}

/// The tree over at most norm_group values that other blocks stored.
template <class Form>
__device__ double merge_group(const double* values, Elements count) {
  constexpr int pack = static_cast<int>(norm_group) / block_threads;
  __syncthreads();  // the last values were read
  double own[pack];
#pragma unroll
  for (int i = 0; i < pack; ++i) {
    const Elements k = Elements{threadIdx.x} * pack + i;
    own[i] = k < count ? __ldcg(values + k) : 0.0;
  }
  double value = merge_neighbours<Form>(own);
#pragma unroll
  for (int distance = 1; distance < lanes; distance *= 2)
    value = merge_lanes<Form>(value, distance);
  return merge_warps<Form>(value);
}

/// The same over any number: sums of groups wait on a stack for their equals.
template <class Form>
__device__ double merge_all(const double* values, Elements count) {
  double stack[40];
  int size = 0;
  Elements taken = 0;
  for (Elements begin = 0; begin < count; begin += norm_group) {
    const Elements left = count - begin;
    stack[size++] = merge_group<Form>(values + begin, left < norm_group ? left : norm_group);
    for (Elements terms = ++taken; terms % 2 == 0; terms /= 2, --size)
      stack[size - 2] = Form::merge(stack[size - 2], stack[size - 1]);
  }
  for (; size > 1; --size) stack[size - 2] = Form::merge(stack[size - 2], stack[size - 1]);
  return stack[0];
}

/// Stores this block's value and tells all its threads whether `others` blocks did so before it;
/// the last one may then read what they stored.
__device__ bool is_last(double value, double* place, unsigned* counter, Elements blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    *place = value;
    __threadfence();
    last = atomicAdd(counter, 1U) == static_cast<unsigned>(blocks - 1);
    if (last) *counter = 0;  // for the next launch
    __threadfence();
  }
  __syncthreads();
  return last;
}

struct NormArguments {
  NormEntry inline_table[inline_nodes];
  NormScratch scratch;
  int nodes;
  double* values;
  __device__ const NormEntry& node(int k) const {
    return scratch.table == nullptr ? inline_table[k] : scratch.table[k];
  }
};

/// The last node whose place(node) is at most `block`.
template <class Place>
__device__ int node_of_block(const NormArguments& arguments, Elements block, const Place& place) {
  if (arguments.scratch.table != nullptr)
    return entry_of_block(arguments.nodes, block,
                          [&](int k) { return place(arguments.scratch.table[k]); });
  int k = 0;  // a table among the parameters is read by all lanes at one place
  for (int next = 1; next < arguments.nodes && place(arguments.inline_table[next]) <= block; ++next)
    k = next;
  return k;
}

template <class Form, class Element>
__global__ void __launch_bounds__(block_threads)
    norm_kernel(const Element* buffer, const __grid_constant__ NormArguments arguments) {
  const int k =
      node_of_block(arguments, blockIdx.x, [](const NormEntry& node) { return node.first_block; });
  const NormEntry node = arguments.node(k);
  const Elements block = blockIdx.x - node.first_block;
  const double value =
      merge_elements<Form>(buffer + node.offset, block * block_elements<Element>, node.count);
  const bool is_whole_node = node.count <= block_elements<Element>;
  if (threadIdx.x == 0)
    *(is_whole_node ? arguments.values + k : arguments.scratch.partials + blockIdx.x) = value;
}

/// Merges what norm_kernel left: a group of blocks each.
template <class Form>
__global__ void __launch_bounds__(block_threads)
    norm_group_kernel(Elements elements_of_block, const __grid_constant__ NormArguments arguments) {
  const int k =
      node_of_block(arguments, blockIdx.x, [](const NormEntry& node) { return node.first_group; });
  const NormEntry node = arguments.node(k);
  const NormScratch& scratch = arguments.scratch;
  const Elements blocks = ceil_div(node.count, elements_of_block);
  const Elements group = blockIdx.x - node.first_group;
  const Elements groups = ceil_div(blocks, norm_group);
  const Elements left = blocks - group * norm_group;
  const double* partials = scratch.partials + node.first_block + group * norm_group;
  const double merged = merge_group<Form>(partials, left < norm_group ? left : norm_group);
  double* sums = scratch.sums + node.first_group;
  if (groups > 1 && !is_last(merged, sums + group, scratch.counters + k, groups)) return;
  const double result = groups > 1 ? merge_all<Form>(sums, groups) : merged;
  if (threadIdx.x == 0) arguments.values[k] = result;
}

template <class Form, class Element>
void launch_norm_of(const void* buffer, Elements blocks, const NormArguments& arguments,
                    cudaStream_t stream) {
  norm_kernel<Form><<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(
      static_cast<const Element*>(buffer), arguments);
}

template <class Form>
void launch_norm_as(const void* buffer, DType dtype, Elements blocks, Elements groups,
                    const NormArguments& arguments, cudaStream_t stream) {
  constexpr decltype(&launch_norm_of<Form, float>) launches[] = {
      launch_norm_of<Form, double>,     launch_norm_of<Form, float>,
      launch_norm_of<Form, Bf16>,       launch_norm_of<Form, Half>,
      launch_norm_of<Form, Float8E4M3>, launch_norm_of<Form, Float8E5M2>};
  launches[static_cast<std::size_t>(dtype)](buffer, blocks, arguments, stream);
  if (groups > 0)
    norm_group_kernel<Form><<<static_cast<unsigned>(groups), block_threads, 0, stream>>>(
        norm_block_elements(dtype), arguments);
}

}  // namespace

Elements norm_block_elements(DType dtype) { return elements_of_block(size_of(dtype)); }

void launch_norm(NormForm form, const void* buffer, DType dtype, std::span<const NormEntry> nodes,
                 Elements blocks, Elements groups, const NormScratch& scratch, double* values,
                 cudaStream_t stream) {
  NormArguments arguments{};
  arguments.scratch = scratch;
  arguments.nodes = static_cast<int>(nodes.size());
  arguments.values = values;
  if (scratch.table == nullptr)
    for (std::size_t k = 0; k < nodes.size(); ++k) arguments.inline_table[k] = nodes[k];
  if (form == NormForm::Squares)
    launch_norm_as<Squares>(buffer, dtype, blocks, groups, arguments, stream);
  else
    launch_norm_as<Maxima>(buffer, dtype, blocks, groups, arguments, stream);
}

}  // namespace flatshard::cuda
