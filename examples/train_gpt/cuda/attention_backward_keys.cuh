#pragma once
// dK and dV of causal attention, without atomics: blocks of keys, each over the queries that see
// them. Probabilities are formed again from scores and lse.
//   dV = P^T dO,  dS = P (dO V^T - delta),  dK = scale dS^T Q
#include "attention_products.cuh"

namespace train_gpt::gpu {

/// A warp takes 16 keys, a block 16 * warps.
template <int head_width, int warp_count, int query_count>
struct KeyTiling {
  static constexpr int D = head_width, warps = warp_count, queries = query_count;
  static constexpr int threads = 32 * warps, keys = 16 * warps;
  static constexpr std::size_t shared =
      sizeof(std::int16_t) * D * (2 * keys + 4 * queries) + sizeof(float) * 4 * queries;
};

/// One number per row into buffer step % 2; `beyond` from `limit` on.
template <int rows, int threads>
__device__ inline void fetch_rows(float* to, const float* from, float beyond, int step, int limit) {
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += threads) {
    const int row = step * rows + i;
    to[step % 2 * rows + i] = row < limit ? from[row] : beyond;
  }
}

/// Scores (keys, queries) become probabilities: 2^(scale2 score - lse of the query), zero where the
/// key comes after the query.
template <int blocks>
__device__ inline void chances_of_keys(float (&chance)[blocks][4], const float* lse, float scale2,
                                       int first_key, int first_query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool masked = first_query < first_key + 15;
#pragma unroll
  for (int n = 0; n < blocks; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * n + 2 * (lane % 4) + i % 2;
      const float power = power_of_two(fmaf(chance[n][i], scale2, -lse[column]));
      const bool seen = !masked || first_key + lane / 4 + 8 * (i / 2) <= first_query + column;
      chance[n][i] = seen ? power : 0.0f;
    }
}

/// Gradients of probabilities (keys, queries) become those of scores.
template <int blocks>
__device__ inline void slants_of_keys(float (&slant)[blocks][4], const float (&chance)[blocks][4],
                                      const float* delta) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < blocks; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      slant[n][i] = chance[n][i] * (slant[n][i] - delta[8 * n + 2 * (lane % 4) + i % 2]);
}

/// dK and dV into their places in dqkv (R, 3C). Grid: (sequences * H, tiles of keys).
/// Scores are formed transposed: a warp's 16 rows are keys, columns are queries.
template <class T, class Tiling>
__global__ void __launch_bounds__(Tiling::threads)
    attention_backward_keys_kernel(T* dqkv, const T* qkv, const T* dout, const float* lse,
                                   const float* delta, AttentionView view) {
  constexpr int D = Tiling::D, keys = Tiling::keys, queries = Tiling::queries;
  constexpr int threads = Tiling::threads;
  T* const key = reinterpret_cast<T*>(dynamic_shared());
  T* const value = key + keys * D;
  T* const query = value + keys * D;         // two buffers
  T* const slope = query + 2 * queries * D;  // of the output; two buffers
  float* const row_lse = reinterpret_cast<float*>(slope + 2 * queries * D);  // two buffers
  float* const row_delta = row_lse + 2 * queries;                            // two buffers
  const BlockHead<D> of(view);
  const int first = static_cast<int>(blockIdx.y) * keys;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int begin = first / queries, end = (view.context + queries - 1) / queries;
  const T* const from = qkv + of.wide;
  const auto fetch = [&](int step) {
    fetch_pair<T, D, queries, threads>(query, from, of.stride, slope, dout + of.narrow, of.width,
                                       step, view.context);
    fetch_rows<queries, threads>(row_lse, lse + of.row, INFINITY, step, view.context);
    fetch_rows<queries, threads>(row_delta, delta + of.row, 0.0f, step, view.context);
  };
  Tile<T, D>::template copy<keys, threads>(key, from + of.width, of.stride, first, view.context);
  Tile<T, D>::template copy<keys, threads>(value, from + 2 * of.width, of.stride, first,
                                           view.context);
  fetch(begin);

  const float scale2 = view.scale * log2_e;
  const int own_key = first + 16 * warp;
  float dkey[1][D / 8][4], dvalue[1][D / 8][4];
  set_zero(dkey);
  set_zero(dvalue);
  overlapped(begin, end, fetch, [&](int step) {
    if (step * queries + queries - 1 < own_key) return;
    const int buffer = step % 2 * queries;
    float chance[1][queries / 8][4], slant[1][queries / 8][4];
    products_of_rows<T, D>(chance, key, 16 * warp, query + buffer * D);
    chances_of_keys(chance[0], row_lse + buffer, scale2, own_key, step * queries);
    add_product<T, D>(dvalue, chance, slope + buffer * D);
    products_of_rows<T, D>(slant, value, 16 * warp, slope + buffer * D);
    slants_of_keys(slant[0], chance[0], row_delta + buffer);
    add_product<T, D>(dkey, slant, query + buffer * D);
  });
  T* const to = dqkv + of.wide;
  Tile<T, D>::write(to + of.width, of.stride, own_key, view.context, key, 16 * warp, dkey[0],
                    view.scale, view.scale);
  Tile<T, D>::write(to + 2 * of.width, of.stride, own_key, view.context, value, 16 * warp,
                    dvalue[0], 1.0f, 1.0f);
}

}  // namespace train_gpt::gpu
