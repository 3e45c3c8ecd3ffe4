#pragma once
// Causal attention of any head width up to 256 and any type, in fp32 arithmetic without tensor
// cores: 32 queries against 32 keys at a time, in shared memory.
#include "attention_tile.cuh"

namespace train_gpt::gpu {

inline constexpr int plain_rows = 32, plain_threads = 256, most_head_width = 256;

/// A (32, 32) and three (32, D + 1) tiles suffice for forward, two more of each for backward.
inline std::size_t plain_shared(int head_width, int planes, int squares) {
  return sizeof(float) * plain_rows *
         static_cast<std::size_t>(planes * (head_width + 1) + squares * (plain_rows + 1) + 2);
}

/// 32 rows as float, each D + 1 apart; zeros from `limit` on.
template <class T>
__device__ inline void plain_load(float* to, const T* from, std::int64_t stride, int first,
                                  int limit, int head_width) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_rows * head_width; i += plain_threads) {
    const int row = i / head_width, column = i % head_width;
    to[row * (head_width + 1) + column] =
        first + row < limit ? to_float(from[(first + row) * stride + column]) : 0.0f;
  }
}

/// out[r][c] = sum over d of left[r][d] * right[c][d].
__device__ inline void plain_products(float* out, const float* left, const float* right,
                                      int head_width) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_rows * plain_rows; i += plain_threads) {
    const int row = i / plain_rows, column = i % plain_rows;
    float sum = 0.0f;
    for (int d = 0; d < head_width; ++d)
      sum = fmaf(left[row * (head_width + 1) + d], right[column * (head_width + 1) + d], sum);
    out[row * (plain_rows + 1) + column] = sum;
  }
}

/// sum[r][d] = sum[r][d] * shrink[r] + sum over c of weight(r, c) * rows[c][d].
template <class Weight>
__device__ inline void plain_accumulate(float* sum, const float* shrink, Weight weight,
                                        const float* rows, int head_width) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_rows * head_width; i += plain_threads) {
    const int row = i / head_width, d = i % head_width;
    float total = 0.0f;
    for (int c = 0; c < plain_rows; ++c)
      total = fmaf(weight(row, c), rows[c * (head_width + 1) + d], total);
    float* const place = sum + row * (head_width + 1) + d;
    *place = fmaf(*place, shrink == nullptr ? 1.0f : shrink[row], total);
  }
}

template <class T>
__device__ inline void plain_store(T* to, std::int64_t stride, int first, int limit,
                                   const float* sum, const float* divisor, float scale,
                                   int head_width) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_rows * head_width; i += plain_threads) {
    const int row = i / head_width, d = i % head_width;
    const float x = sum[row * (head_width + 1) + d] * scale;
    if (first + row < limit)
      to[(first + row) * stride + d] = from_float<T>(divisor == nullptr ? x : x / divisor[row]);
  }
}

__device__ inline void plain_zero(float* tile, int head_width) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_rows * (head_width + 1); i += plain_threads)
    tile[i] = 0.0f;
}

/// As attention_forward_kernel. Grid: (sequences * H, tiles of 32 queries).
template <class T>
__global__ void __launch_bounds__(plain_threads)
    attention_plain_forward_kernel(T* out, float* lse, const T* qkv, AttentionView view,
                                   int head_width) {
  const int plane = plain_rows * (head_width + 1);
  float* const query = reinterpret_cast<float*>(dynamic_shared());
  float *const other = query + plane, *const sum = other + plane, *const score = sum + plane;
  float* const shrink = score + plain_rows * (plain_rows + 1);
  float* const total = shrink + plain_rows;
  const int sequence = static_cast<int>(blockIdx.x) / view.heads;
  const int head = static_cast<int>(blockIdx.x) % view.heads;
  const int first = static_cast<int>(blockIdx.y) * plain_rows;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t width = view.width(head_width), stride = 3 * width;
  const std::int64_t token = static_cast<std::int64_t>(sequence) * view.context;
  const T* const from = qkv + token * stride + head * head_width;
  plain_load(query, from, stride, first, view.context, head_width);
  plain_zero(sum, head_width);
  float maximum[4], denominator[4];  // of rows 4 warp .. 4 warp + 3, in every lane
  for (int r = 0; r < 4; ++r) maximum[r] = -INFINITY, denominator[r] = 0.0f;
  for (int at = 0; at <= first; at += plain_rows) {
    __syncthreads();
    plain_load(other, from + width, stride, at, view.context, head_width);
    __syncthreads();
    plain_products(score, query, other, head_width);
    __syncthreads();
    plain_load(other, from + 2 * width, stride, at, view.context, head_width);
    for (int r = 0; r < 4; ++r) {
      const int row = 4 * warp + r;
      float* const place = score + row * (plain_rows + 1) + lane;
      const float x = at + lane <= first + row ? *place * view.scale : -INFINITY;
      float most = x;
      for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(whole_warp, most, distance));
      most = fmaxf(most, maximum[r]);
      const float power = expf(x - most), less = expf(maximum[r] - most);
      *place = power;
      denominator[r] = fmaf(denominator[r], less, warp_sum(power));
      maximum[r] = most;
      if (lane == 0) shrink[row] = less, total[row] = denominator[r];
    }
    __syncthreads();
    plain_accumulate(
        sum, shrink, [&](int r, int c) { return score[r * (plain_rows + 1) + c]; }, other,
        head_width);
  }
  __syncthreads();
  for (int r = 0; r < 4; ++r)
    if (lane == 0 && first + 4 * warp + r < view.context)
      lse[static_cast<std::int64_t>(blockIdx.x) * view.context + first + 4 * warp + r] =
          (maximum[r] + logf(denominator[r])) * log2_e;
  plain_store(out + token * width + head * head_width, width, first, view.context, sum, total, 1.0f,
              head_width);
}

}  // namespace train_gpt::gpu
