#pragma once
// dQ of causal attention, without atomics: blocks of queries, each over the keys that they see.
//   dS = P (dO V^T - delta),  dQ = scale dS K
#include "attention_products.cuh"

namespace train_gpt::gpu {

/// A block takes 16 * tiles * warps queries.
template <int head_width, int tiles_per_warp, int warp_count, int key_count>
struct QueryTiling {
  static constexpr int D = head_width, tiles = tiles_per_warp, warps = warp_count;
  static constexpr int threads = 32 * warps, queries = 16 * tiles * warps, keys = key_count;
  static constexpr std::size_t shared = sizeof(std::int16_t) * D * (2 * queries + 4 * keys);
};

/// Gradients of probabilities become those of scores, from the scores; zero where the key comes
/// after the query. Rows l / 4 and l / 4 + 8 after first_row have lse[0], lse[1].
template <int blocks>
__device__ inline void slants_of_queries(float (&slant)[blocks][4], const float (&score)[blocks][4],
                                         const float (&lse)[2], const float (&delta)[2],
                                         float scale2, int first_row, int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool masked = first_key + 8 * blocks - 1 > first_row;
#pragma unroll
  for (int n = 0; n < blocks; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float power = power_of_two(fmaf(score[n][i], scale2, -lse[i / 2]));
      const int column = first_key + 8 * n + 2 * (lane % 4) + i % 2;
      const bool seen = !masked || column <= first_row + lane / 4 + 8 * (i / 2);
      slant[n][i] = seen ? power * (slant[n][i] - delta[i / 2]) : 0.0f;
    }
}

/// dQ into its place in dqkv (R, 3C). Grid: (sequences * H, tiles of queries, longest first).
template <class T, class Tiling>
__global__ void __launch_bounds__(Tiling::threads)
    attention_backward_queries_kernel(T* dqkv, const T* qkv, const T* dout, const float* lse,
                                      const float* delta, AttentionView view) {
  constexpr int D = Tiling::D, tiles = Tiling::tiles, keys = Tiling::keys;
  constexpr int queries = Tiling::queries, threads = Tiling::threads;
  T* const query = reinterpret_cast<T*>(dynamic_shared());
  T* const slope = query + queries * D;  // of the output
  T* const key = slope + queries * D;    // two buffers
  T* const value = key + 2 * keys * D;   // two buffers
  const BlockHead<D> of(view);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * queries;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_row = first + 16 * tiles * warp;
  const int steps = (min(first + queries, view.context) + keys - 1) / keys;
  const T* const from = qkv + of.wide;
  const auto fetch = [&](int step) {
    fetch_pair<T, D, keys, threads>(key, from + of.width, of.stride, value, from + 2 * of.width,
                                    of.stride, step, view.context);
  };
  Tile<T, D>::template copy<queries, threads>(query, from, of.stride, first, view.context);
  Tile<T, D>::template copy<queries, threads>(slope, dout + of.narrow, of.width, first,
                                              view.context);
  fetch(0);

  const float scale2 = view.scale * log2_e;
  float own_lse[tiles][2], own_delta[tiles][2];
#pragma unroll
  for (int m = 0; m < tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own_row + 16 * m + lane / 4 + 8 * half;
      own_lse[m][half] = row < view.context ? lse[of.row + row] : INFINITY;
      own_delta[m][half] = row < view.context ? delta[of.row + row] : 0.0f;
    }
  float dquery[tiles][D / 8][4];
  set_zero(dquery);
  overlapped(0, steps, fetch, [&](int step) {
    if (step * keys > own_row + 16 * tiles - 1) return;
    const int buffer = step % 2 * keys * D;
    float chance[tiles][keys / 8][4], slant[tiles][keys / 8][4];
    products_of_rows<T, D>(chance, query, 16 * tiles * warp, key + buffer);
    products_of_rows<T, D>(slant, slope, 16 * tiles * warp, value + buffer);
#pragma unroll
    for (int m = 0; m < tiles; ++m)
      slants_of_queries(slant[m], chance[m], own_lse[m], own_delta[m], scale2, own_row + 16 * m,
                        step * keys);
    add_product<T, D>(dquery, slant, key + buffer);
  });
#pragma unroll
  for (int m = 0; m < tiles; ++m)
    Tile<T, D>::write(dqkv + of.wide, of.stride, own_row + 16 * m, view.context, query,
                      16 * (tiles * warp + m), dquery[m], view.scale, view.scale);
}

}  // namespace train_gpt::gpu
