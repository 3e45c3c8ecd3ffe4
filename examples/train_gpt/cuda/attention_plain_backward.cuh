#pragma once
// Gradients of causal attention without tensor cores: 32 queries against 32 keys at a time.
#include "attention_plain.cuh"

namespace train_gpt::gpu {

/// chance = P and slant = P (dO V^T - delta) of 32 queries from `row` on and 32 keys from `column`.
__device__ inline void plain_slopes(float* chance, float* slant, const float* lse,
                                    const float* delta, int row, int column, AttentionView view) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_rows * plain_rows; i += plain_threads) {
    const int r = i / plain_rows, c = i % plain_rows, at = r * (plain_rows + 1) + c;
    const bool seen = row + r < view.context && column + c <= row + r;
    const float p =
        seen ? expf(chance[at] * view.scale - lse[row + r] * 0.693147180559945309f) : 0.0f;
    chance[at] = p;
    slant[at] = seen ? p * (slant[at] - delta[row + r]) : 0.0f;
  }
}

/// As attention_backward_queries_kernel when `of_keys` is false, else as ..._keys_kernel.
/// Grid: (sequences * H, tiles of 32).
template <class T, bool of_keys>
__global__ void __launch_bounds__(plain_threads)
    attention_plain_backward_kernel(T* dqkv, const T* qkv, const T* dout, const float* lse,
                                    const float* delta, AttentionView view, int head_width) {
  const int plane = plain_rows * (head_width + 1), square = plain_rows * (plain_rows + 1);
  float* const query = reinterpret_cast<float*>(dynamic_shared());
  float *const slope = query + plane, *const key = slope + plane, *const value = key + plane;
  float* const sum = value + plane;                   // of dQ, or of dK
  float* const dvalue = sum + (of_keys ? plane : 0);  // unused when not of_keys
  float *const chance = dvalue + plane, *const slant = chance + square;
  const int sequence = static_cast<int>(blockIdx.x) / view.heads;
  const int head = static_cast<int>(blockIdx.x) % view.heads;
  const int first = static_cast<int>(blockIdx.y) * plain_rows;
  const std::int64_t width = view.width(head_width), stride = 3 * width;
  const std::int64_t token = static_cast<std::int64_t>(sequence) * view.context;
  const std::int64_t of_head = static_cast<std::int64_t>(blockIdx.x) * view.context;
  const T* const from = qkv + token * stride + head * head_width;
  const T* const from_slope = dout + token * width + head * head_width;
  const auto load_queries = [&](int at) {
    plain_load(query, from, stride, at, view.context, head_width);
    plain_load(slope, from_slope, width, at, view.context, head_width);
  };
  const auto load_keys = [&](int at) {
    plain_load(key, from + width, stride, at, view.context, head_width);
    plain_load(value, from + 2 * width, stride, at, view.context, head_width);
  };
  of_keys ? load_keys(first) : load_queries(first);
  plain_zero(sum, head_width);
  if (of_keys) plain_zero(dvalue, head_width);
  const int begin = of_keys ? first : 0, end = of_keys ? view.context : first + 1;
  for (int at = begin; at < end; at += plain_rows) {
    __syncthreads();
    of_keys ? load_queries(at) : load_keys(at);
    __syncthreads();
    plain_products(chance, query, key, head_width);
    plain_products(slant, slope, value, head_width);
    __syncthreads();
    plain_slopes(chance, slant, lse + of_head, delta + of_head, of_keys ? at : first,
                 of_keys ? first : at, view);
    __syncthreads();
    if (of_keys) {
      const auto transposed = [](const float* x) {
        return [x](int r, int c) { return x[c * (plain_rows + 1) + r]; };
      };
      plain_accumulate(sum, nullptr, transposed(slant), query, head_width);
      plain_accumulate(dvalue, nullptr, transposed(chance), slope, head_width);
    } else {
      plain_accumulate(
          sum, nullptr, [&](int r, int c) { return slant[r * (plain_rows + 1) + c]; }, key,
          head_width);
    }
  }
  __syncthreads();
  T* const to = dqkv + token * stride + head * head_width;
  plain_store(to + (of_keys ? width : 0), stride, first, view.context, sum, nullptr, view.scale,
              head_width);
  if (of_keys)
    plain_store(to + 2 * width, stride, first, view.context, dvalue, nullptr, 1.0f, head_width);
}

}  // namespace train_gpt::gpu
