// Layer norm, a warp per row; a row is read again from the cache rather than kept.
#include "device_code.cuh"
#include "kernels.hpp"

namespace train_gpt::gpu {
namespace {

constexpr int warps = 8;
constexpr float epsilon = 1e-5f;

template <int n, class Function>
__device__ inline void for_row(std::int64_t width, Function function) {
  for (std::int64_t i = threadIdx.x % 32 * n; i < width; i += 32 * n) function(i);
}

__device__ inline std::int64_t own_row() {
  return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
}

template <int n, class T>
__global__ void layernorm_forward_kernel(T* out, float* mean, float* rstd, const T* x,
                                         const T* weight, const T* bias, std::int64_t rows,
                                         std::int64_t width) {
  const std::int64_t row = own_row();
  if (row >= rows) return;
  const T* const from = x + row * width;
  float sum = 0.0f;
  for_row<n>(width, [&](std::int64_t i) {
    float v[n];
    load_floats(v, from + i);
#pragma unroll
    for (int j = 0; j < n; ++j) sum += v[j];
  });
  const float middle = warp_sum(sum) / static_cast<float>(width);
  float square = 0.0f;
  for_row<n>(width, [&](std::int64_t i) {
    float v[n];
    load_floats(v, from + i);
#pragma unroll
    for (int j = 0; j < n; ++j) square = fmaf(v[j] - middle, v[j] - middle, square);
  });
  const float scale = 1.0f / sqrtf(warp_sum(square) / static_cast<float>(width) + epsilon);
  for_row<n>(width, [&](std::int64_t i) {
    float v[n], w[n], b[n];
    load_floats(v, from + i);
    load_floats(w, weight + i);
    load_floats(b, bias + i);
#pragma unroll
    for (int j = 0; j < n; ++j) v[j] = fmaf((v[j] - middle) * scale, w[j], b[j]);
    store_floats(out + row * width + i, v);
  });
  if (threadIdx.x % 32 == 0) mean[row] = middle, rstd[row] = scale;
}

template <int n, bool accumulate, class T>
__global__ void layernorm_backward_kernel(T* dx, const T* dout, const T* x, const float* mean,
                                          const float* rstd, const T* weight, std::int64_t rows,
                                          std::int64_t width) {
  const std::int64_t row = own_row();
  if (row >= rows) return;
  const float middle = mean[row], scale = rstd[row];
  float sum = 0.0f, product = 0.0f;
  /// slope = dout * weight and normal = (x - mean) * rstd of n columns.
  const auto read = [&](float(&slope)[n], float(&normal)[n], std::int64_t i) {
    float w[n];
    load_floats(slope, dout + row * width + i);
    load_floats(normal, x + row * width + i);
    load_floats(w, weight + i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      slope[j] *= w[j];
      normal[j] = (normal[j] - middle) * scale;
    }
  };
  for_row<n>(width, [&](std::int64_t i) {
    float slope[n], normal[n];
    read(slope, normal, i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      sum += slope[j];
      product = fmaf(slope[j], normal[j], product);
    }
  });
  const float mean_slope = warp_sum(sum) / static_cast<float>(width);
  const float mean_product = warp_sum(product) / static_cast<float>(width);
  for_row<n>(width, [&](std::int64_t i) {
    float slope[n], normal[n], out[n] = {};
    read(slope, normal, i);
    if (accumulate) load_floats(out, dx + row * width + i);
#pragma unroll
    for (int j = 0; j < n; ++j)
      out[j] += (slope[j] - mean_slope - normal[j] * mean_product) * scale;
    store_floats(dx + row * width + i, out);
  });
}

}  // namespace

template <class T>
void layernorm_forward(T* out, float* mean, float* rstd, const T* x, const T* weight, const T* bias,
                       std::int64_t rows, std::int64_t width, StreamHandle stream) {
  using D = DeviceType<T>;
  const bool vectors = are_vectors<T>(width, out, x, weight, bias);
  launch("layernorm_forward",
         vectors ? layernorm_forward_kernel<vector_width<T>, D> : layernorm_forward_kernel<1, D>,
         dim3(blocks_of(rows, warps)), dim3(32 * warps), 0, stream, native(out), mean, rstd,
         native(x), native(weight), native(bias), rows, width);
}

template <class T>
void layernorm_backward(T* dx, bool accumulate, const T* dout, const T* x, const float* mean,
                        const float* rstd, const T* weight, std::int64_t rows, std::int64_t width,
                        StreamHandle stream) {
  using D = DeviceType<T>;
  constexpr int n = vector_width<T>;
  const bool vectors = are_vectors<T>(width, dx, dout, x, weight);
  const auto kernel = accumulate ? (vectors ? layernorm_backward_kernel<n, true, D>
                                            : layernorm_backward_kernel<1, true, D>)
                                 : (vectors ? layernorm_backward_kernel<n, false, D>
                                            : layernorm_backward_kernel<1, false, D>);
  launch("layernorm_backward", kernel, dim3(blocks_of(rows, warps)), dim3(32 * warps), 0, stream,
         native(dx), native(dout), native(x), mean, rstd, native(weight), rows, width);
}

#define TRAIN_GPT_INSTANTIATE(T)                                                                  \
  template void layernorm_forward(T*, float*, float*, const T*, const T*, const T*, std::int64_t, \
                                  std::int64_t, StreamHandle);                                    \
  template void layernorm_backward(T*, bool, const T*, const T*, const float*, const float*,      \
                                   const T*, std::int64_t, std::int64_t, StreamHandle);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(flatshard::Bf16)
TRAIN_GPT_INSTANTIATE(flatshard::Half)

}  // namespace train_gpt::gpu
