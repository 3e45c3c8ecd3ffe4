#pragma once
// Gradients of causal attention, without atomics: one kernel over blocks of keys sums dK and dV,
// one over blocks of queries sums dQ; both form the probabilities again from scores and lse.
//   dV = P^T dO,  dS = P (dO V^T - delta),  dQ = scale dS K,  dK = scale dS^T Q,
//   delta = row sums of dO * O.
#include "attention_tile.cuh"

namespace train_gpt::gpu {

/// A warp takes 16 keys, a block 16 * warps.
template <int head_width, int warp_count, int query_count>
struct KeyTiling {
  static constexpr int D = head_width, warps = warp_count, queries = query_count;
  static constexpr int threads = 32 * warps, keys = 16 * warps;
  static constexpr std::size_t shared =
      sizeof(std::int16_t) * D * (2 * keys + 4 * queries) + sizeof(float) * 4 * queries;
};

/// A block takes 16 * tiles * warps queries.
template <int head_width, int tiles_per_warp, int warp_count, int key_count>
struct QueryTiling {
  static constexpr int D = head_width, tiles = tiles_per_warp, warps = warp_count;
  static constexpr int threads = 32 * warps, queries = 16 * tiles * warps, keys = key_count;
  static constexpr std::size_t shared = sizeof(std::int16_t) * D * (2 * queries + 4 * keys);
};

/// delta (sequences, H, T); a warp per token and head.
template <class T>
__global__ void attention_delta_kernel(float* delta, const T* out, const T* dout, std::int64_t rows,
                                       int context, int heads, int head_width) {
  const std::int64_t pair =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (pair >= rows * heads) return;
  const std::int64_t begin = pair * head_width;
  float sum = 0.0f;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < head_width; i += 32)
    sum = fmaf(to_float(out[begin + i]), to_float(dout[begin + i]), sum);
  sum = warp_sum(sum);
  const std::int64_t row = pair / heads, head = pair % heads;
  if (threadIdx.x % 32 == 0) delta[(row / context * heads + head) * context + row % context] = sum;
}

/// The same for heads of D columns, whole vectors: D / n threads per token and head.
template <class T, int D>
__global__ void attention_delta_of_vectors_kernel(float* delta, const T* out, const T* dout,
                                                  std::int64_t pairs, int context, int heads) {
  constexpr int n = vector_width<T>, lanes = D / n;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t pair = at / lanes;
  float sum = 0.0f;
  if (pair < pairs) {
    float x[n], y[n];
    load_floats(x, out + at * n);
    load_floats(y, dout + at * n);
#pragma unroll
    for (int i = 0; i < n; ++i) sum = fmaf(x[i], y[i], sum);
  }
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(whole_warp, sum, distance);
  const std::int64_t row = pair / heads, head = pair % heads;
  if (pair < pairs && at % lanes == 0)
    delta[(row / context * heads + head) * context + row % context] = sum;
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
  const int sequence = static_cast<int>(blockIdx.x) / view.heads;
  const int head = static_cast<int>(blockIdx.x) % view.heads;
  const int first = static_cast<int>(blockIdx.y) * keys;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t width = view.width(D), stride = 3 * width;
  const std::int64_t token = static_cast<std::int64_t>(sequence) * view.context;
  const T* const from = qkv + token * stride + head * D;
  const T* const from_slope = dout + token * width + head * D;
  const std::int64_t of_head = static_cast<std::int64_t>(blockIdx.x) * view.context;
  const int begin = first / queries, end = (view.context + queries - 1) / queries;

  const auto fetch = [&](int step) {
    const int buffer = step % 2, at = step * queries;
    Tile<T, D>::template copy<queries, threads>(query + buffer * queries * D, from, stride, at,
                                                view.context);
    Tile<T, D>::template copy<queries, threads>(slope + buffer * queries * D, from_slope, width, at,
                                                view.context);
    commit_copies();
    for (int i = static_cast<int>(threadIdx.x); i < queries; i += threads) {
      const bool inside = at + i < view.context;
      row_lse[buffer * queries + i] = inside ? lse[of_head + at + i] : INFINITY;
      row_delta[buffer * queries + i] = inside ? delta[of_head + at + i] : 0.0f;
    }
  };
  Tile<T, D>::template copy<keys, threads>(key, from + width, stride, first, view.context);
  Tile<T, D>::template copy<keys, threads>(value, from + 2 * width, stride, first, view.context);
  fetch(begin);

  const float scale2 = view.scale * log2_e;
  const int own_key = first + 16 * warp;
  float dkey[1][D / 8][4], dvalue[1][D / 8][4];
  set_zero(dkey);
  set_zero(dvalue);
  for (int step = begin; step < end; ++step) {
    if (step + 1 < end) {
      fetch(step + 1);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    if (step * queries + queries - 1 >= own_key) {
      const int buffer = step % 2;
      const float* const of_lse = row_lse + buffer * queries + 2 * (lane % 4);
      const float* const of_delta = row_delta + buffer * queries + 2 * (lane % 4);
      float chance[1][queries / 8][4], slant[1][queries / 8][4];
      products_of_rows<T, D>(chance, key, 16 * warp, query + buffer * queries * D);
      const bool masked = step * queries < own_key + 15;
#pragma unroll
      for (int n = 0; n < queries / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float exponent = fmaf(chance[0][n][i], scale2, -of_lse[8 * n + i % 2]);
          const int row = step * queries + 8 * n + 2 * (lane % 4) + i % 2;
          const bool seen = !masked || own_key + lane / 4 + 8 * (i / 2) <= row;
          chance[0][n][i] = seen ? power_of_two(exponent) : 0.0f;
        }
      add_product<T, D>(dvalue, chance, slope + buffer * queries * D);
      products_of_rows<T, D>(slant, value, 16 * warp, slope + buffer * queries * D);
#pragma unroll
      for (int n = 0; n < queries / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          slant[0][n][i] = chance[0][n][i] * (slant[0][n][i] - of_delta[8 * n + i % 2]);
      add_product<T, D>(dkey, slant, query + buffer * queries * D);
    }
    __syncthreads();
  }
  T* const to = dqkv + token * stride + head * D;
  Tile<T, D>::write(to + width, stride, own_key, view.context, key, 16 * warp, dkey[0], view.scale,
                    view.scale);
  Tile<T, D>::write(to + 2 * width, stride, own_key, view.context, value, 16 * warp, dvalue[0],
                    1.0f, 1.0f);
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
  const int sequence = static_cast<int>(blockIdx.x) / view.heads;
  const int head = static_cast<int>(blockIdx.x) % view.heads;
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * queries;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t width = view.width(D), stride = 3 * width;
  const std::int64_t token = static_cast<std::int64_t>(sequence) * view.context;
  const T* const from = qkv + token * stride + head * D;
  const std::int64_t of_head = static_cast<std::int64_t>(blockIdx.x) * view.context;
  const int own_row = first + 16 * tiles * warp;
  const int steps = (min(first + queries, view.context) + keys - 1) / keys;

  const auto fetch = [&](int step) {
    const int buffer = step % 2 * keys * D;
    Tile<T, D>::template copy<keys, threads>(key + buffer, from + width, stride, step * keys,
                                             view.context);
    Tile<T, D>::template copy<keys, threads>(value + buffer, from + 2 * width, stride, step * keys,
                                             view.context);
    commit_copies();
  };
  Tile<T, D>::template copy<queries, threads>(query, from, stride, first, view.context);
  Tile<T, D>::template copy<queries, threads>(slope, dout + token * width + head * D, width, first,
                                              view.context);
  fetch(0);

  const float scale2 = view.scale * log2_e;
  float own_lse[tiles][2], own_delta[tiles][2];
#pragma unroll
  for (int m = 0; m < tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own_row + 16 * m + lane / 4 + 8 * half;
      own_lse[m][half] = row < view.context ? lse[of_head + row] : INFINITY;
      own_delta[m][half] = row < view.context ? delta[of_head + row] : 0.0f;
    }
  float dquery[tiles][D / 8][4];
  set_zero(dquery);
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      fetch(step + 1);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    if (step * keys <= own_row + 16 * tiles - 1) {
      const int buffer = step % 2 * keys * D;
      float chance[tiles][keys / 8][4], slant[tiles][keys / 8][4];
      products_of_rows<T, D>(chance, query, 16 * tiles * warp, key + buffer);
      products_of_rows<T, D>(slant, slope, 16 * tiles * warp, value + buffer);
      const bool masked = step * keys + keys - 1 > own_row;
#pragma unroll
      for (int m = 0; m < tiles; ++m)
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float power = power_of_two(fmaf(chance[m][n][i], scale2, -own_lse[m][i / 2]));
            const int column = step * keys + 8 * n + 2 * (lane % 4) + i % 2;
            const bool seen = !masked || column <= own_row + 16 * m + lane / 4 + 8 * (i / 2);
            slant[m][n][i] = seen ? power * (slant[m][n][i] - own_delta[m][i / 2]) : 0.0f;
          }
      add_product<T, D>(dquery, slant, key + buffer);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < tiles; ++m)
    Tile<T, D>::write(dqkv + token * stride + head * D, stride, own_row + 16 * m, view.context,
                      query, 16 * (tiles * warp + m), dquery[m], view.scale, view.scale);
}

}  // namespace train_gpt::gpu
