// The norm's tree within a block: neighbours of a thread, lanes of a warp, warps of a block.
#pragma once

#include "launchers.hpp"
#include "pack.cuh"

namespace flatshard::cuda {

inline constexpr int lanes = 32;
inline constexpr int warps = block_threads / lanes;

/// The two norms differ in nothing else.
struct Squares {
  static __device__ double leaf(double x) { return exact::mul(x, x); }
  static __device__ double merge(double a, double b) { return exact::add(a, b); }
};
struct Maxima {
  static __device__ double leaf(double x) { return fabs(x); }
  static __device__ double merge(double a, double b) { return larger_magnitude(a, b); }
};

FLATSHARD_INLINE __device__ double from_lane(double value, int distance) {
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

}  // namespace flatshard::cuda
