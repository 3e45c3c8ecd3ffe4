#pragma once
// Causal attention by tiles of 64 keys with a running maximum and sum (Milakov and Gimelshein;
// FlashAttention): no T x T matrix exists.
#include "attention_products.cuh"

namespace train_gpt::gpu {

/// A block takes 16 * tiles * warps queries of one head; a warp 16 * tiles of them.
template <int head_width, int tiles_per_warp, int warp_count>
struct ForwardTiling {
  static constexpr int D = head_width, tiles = tiles_per_warp, warps = warp_count;
  static constexpr int threads = 32 * warps, queries = 16 * tiles * warps, keys = 64;
  static constexpr std::size_t shared = sizeof(std::int16_t) * D * (queries + 4 * keys);
};

/// One row's running maximum of the scores and sum of 2^(scale2 (score - maximum)).
struct SoftmaxState {
  float maximum = -INFINITY, sum = 0.0f;
};

/// Masks keys beyond the query (rows: first_row + l / 4, + 8), turns scores into powers, and scales
/// what was summed before.
template <int D, int blocks>
__device__ inline void online_softmax(float (&score)[blocks][4], float (&out)[D / 8][4],
                                      SoftmaxState (&state)[2], float scale2, int first_row,
                                      int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (first_key + 8 * blocks - 1 > first_row)
#pragma unroll
    for (int n = 0; n < blocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + 8 * n + 2 * (lane % 4) + i % 2;
        if (key > first_row + lane / 4 + 8 * (i / 2)) score[n][i] = -INFINITY;
      }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = state[half].maximum;
#pragma unroll
    for (int n = 0; n < blocks; ++n)
      most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(whole_warp, most, 1));
    most = fmaxf(most, __shfl_xor_sync(whole_warp, most, 2));
    const float shrink = power_of_two((state[half].maximum - most) * scale2);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < blocks; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score[n][i] = power_of_two(fmaf(score[n][i], scale2, -most * scale2));
        sum += score[n][i];
      }
    state[half] = {most, fmaf(state[half].sum, shrink, sum)};
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) out[n][i] *= shrink;
  }
}

/// Joins the sums of the four lanes of a row: its inverse, and lse of rows first_row + l / 4, + 8.
__device__ inline void finish_rows(float (&inverse)[2], float* lse, const SoftmaxState (&state)[2],
                                   float scale2, int first_row, int limit) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = state[half].sum;
    total += __shfl_xor_sync(whole_warp, total, 1);
    total += __shfl_xor_sync(whole_warp, total, 2);
    inverse[half] = 1.0f / total;
    const int row = first_row + lane / 4 + 8 * half;
    if (lane % 4 == 0 && row < limit) lse[row] = fmaf(state[half].maximum, scale2, log2f(total));
  }
}

/// out (R, C); lse (sequences, H, T): log2 of the sum of 2^(scale2 score), for backward.
/// Grid: (sequences * H, tiles of queries, longest first).
template <class T, class Tiling>
__global__ void __launch_bounds__(Tiling::threads)
    attention_forward_kernel(T* out, float* lse, const T* qkv, AttentionView view) {
  constexpr int D = Tiling::D, tiles = Tiling::tiles, keys = Tiling::keys;
  constexpr int queries = Tiling::queries, threads = Tiling::threads;
  T* const query = reinterpret_cast<T*>(dynamic_shared());
  T* const key = query + queries * D;   // two buffers
  T* const value = key + 2 * keys * D;  // two buffers
  const BlockHead<D> of(view);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * queries;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int own_row = first + 16 * tiles * warp;
  const int steps = (min(first + queries, view.context) + keys - 1) / keys;
  const T* const from = qkv + of.wide;
  const auto fetch = [&](int step) {
    fetch_pair<T, D, keys, threads>(key, from + of.width, of.stride, value, from + 2 * of.width,
                                    of.stride, step, view.context);
  };
  Tile<T, D>::template copy<queries, threads>(query, from, of.stride, first, view.context);
  fetch(0);

  const float scale2 = view.scale * log2_e;
  SoftmaxState state[tiles][2];
  float sum[tiles][D / 8][4];
  set_zero(sum);
  overlapped(0, steps, fetch, [&](int step) {
    if (step * keys > own_row + 16 * tiles - 1) return;
    const int buffer = step % 2 * keys * D;
    float score[tiles][keys / 8][4];
    products_of_rows<T, D>(score, query, 16 * tiles * warp, key + buffer);
#pragma unroll
    for (int m = 0; m < tiles; ++m)
      online_softmax<D>(score[m], sum[m], state[m], scale2, own_row + 16 * m, step * keys);
    add_product<T, D>(sum, score, value + buffer);
  });
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    float inverse[2];
    finish_rows(inverse, lse + of.row, state[m], scale2, own_row + 16 * m, view.context);
    Tile<T, D>::write(out + of.narrow, of.width, own_row + 16 * m, view.context, query,
                      16 * (tiles * warp + m), sum[m], inverse[0], inverse[1]);
  }
}

}  // namespace train_gpt::gpu
