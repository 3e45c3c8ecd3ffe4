#pragma once
// Row sums of dO * O, which the gradient of a softmax subtracts.
#include "device_code.cuh"

namespace train_gpt::gpu {

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

}  // namespace train_gpt::gpu
