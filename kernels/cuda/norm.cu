// Sums of squares and largest magnitudes over the norm's tree. A block takes an aligned piece of a
// node and leaves its value; a second kernel merges 1024 of those a block, and its last block to
// finish the node's. Which block that is changes nothing: the tree is fixed. Pieces are small, so
// that many blocks read while others merge: with 32 KB a block 0.93 of the copy's bandwidth.
#include "launchers.hpp"
#include "pack.cuh"

namespace flatshard::cuda {
namespace {

constexpr int lanes = 32;
constexpr int warps = block_threads / lanes;

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

/// The two norms differ in nothing else.
struct Squares {
  static __device__ double leaf(double x) { return exact::mul(x, x); }
  static __device__ double merge(double a, double b) { return exact::add(a, b); }
};
struct Maxima {
  static __device__ double leaf(double x) { return fabs(x); }
  static __device__ double merge(double a, double b) { return larger_magnitude(a, b); }
};

__device__ double from_lane(double value, int distance) {
  return __shfl_xor_sync(0xffffffffU, value, distance);
}

/// Merges what is equally far from this lane in `value`.
template <class Form>
__device__ double merge_lanes(double value, int distance) {
  return Form::merge(value, from_lane(value, distance));
}

/// The tree over a warp's tiles, given this lane's value of each: at every step half of the tiles
/// move to the neighbour, so that a value crosses lanes once and not once per tile.
template <class Form, int tiles>
__device__ double merge_tiles(double (&tile)[tiles]) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
#pragma unroll
  for (int distance = 1, kept = tiles / 2; kept > 0; distance *= 2, kept /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int t = 0; t < kept; ++t) {
      const double given = upper ? tile[t] : tile[t + kept];
      const double own = upper ? tile[t + kept] : tile[t];
      tile[t] = Form::merge(own, from_lane(given, distance));
    }
  }
  double value = tile[0];
#pragma unroll
  for (int distance = tiles; distance < lanes; distance *= 2)
    value = merge_lanes<Form>(value, distance);
#pragma unroll
  for (int distance = tiles / 2; distance > 0; distance /= 2)
    value = merge_lanes<Form>(value, distance);
  return value;
}

/// The tree over neighbouring warps' values, in the first warp.
template <class Form>
__device__ double merge_warps(double value) {
  __shared__ double of_warp[warps];
  if (threadIdx.x % lanes == 0) of_warp[threadIdx.x / lanes] = value;
  __syncthreads();
  if (threadIdx.x >= lanes) return 0;
  double merged[warps];
  for (int w = 0; w < warps; ++w) merged[w] = of_warp[w];
#pragma unroll
  for (int distance = 1; distance < warps; distance *= 2)
#pragma unroll
    for (int w = 0; w < warps; w += 2 * distance)
      merged[w] = Form::merge(merged[w], merged[w + distance]);
  return merged[0];
}

/// The tree over `Count` neighbours.
template <class Form, int Count>
FLATSHARD_INLINE __device__ double merge_neighbours(double (&values)[Count]) {
#pragma unroll
  for (int distance = 1; distance < Count; distance *= 2)
#pragma unroll
    for (int i = 0; i < Count; i += 2 * distance)
      values[i] = Form::merge(values[i], values[i + distance]);
  return values[0];
}

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

constexpr int shared_values = 4096;  // that fit a block's shared memory

template <class Form>
__device__ void merge_levels(const NormAdd* adds, const int* ends, int levels, double* values) {
  int begin = 0;
  for (int level = 0; level < levels; ++level) {
    for (int k = begin + static_cast<int>(threadIdx.x); k < ends[level]; k += block_threads)
      values[adds[k].into] = Form::merge(values[adds[k].into], values[adds[k].from]);
    begin = ends[level];
    __syncthreads();
  }
}

template <class Form, bool Shared>
__global__ void __launch_bounds__(block_threads)
    merge_kernel(const NormAdd* __restrict__ adds, const int* __restrict__ ends, int levels,
                 int value_count, double* values) {
  if constexpr (Shared) {
    __shared__ double copy[shared_values];
    for (int k = threadIdx.x; k < value_count; k += block_threads) copy[k] = values[k];
    __syncthreads();
    merge_levels<Form>(adds, ends, levels, copy);
    for (int k = threadIdx.x; k < value_count; k += block_threads) values[k] = copy[k];
  } else {
    merge_levels<Form>(adds, ends, levels, values);
  }
}

template <class Form>
void launch_merge_as(const NormAdd* adds, const int* ends, int levels, int value_count,
                     double* values, cudaStream_t stream) {
  if (value_count <= shared_values)
    merge_kernel<Form, true>
        <<<1, block_threads, 0, stream>>>(adds, ends, levels, value_count, values);
  else
    merge_kernel<Form, false>
        <<<1, block_threads, 0, stream>>>(adds, ends, levels, value_count, values);
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

void launch_merge(NormForm form, const NormAdd* adds, const int* ends, int levels, int value_count,
                  double* values, cudaStream_t stream) {
  if (form == NormForm::Squares)
    launch_merge_as<Squares>(adds, ends, levels, value_count, values, stream);
  else
    launch_merge_as<Maxima>(adds, ends, levels, value_count, values, stream);
}

}  // namespace flatshard::cuda
