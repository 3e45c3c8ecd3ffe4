// Softmax cross-entropy and its gradient in place, a block per row: one reading pass with a running
// maximum and sum, then one that reads the row again, from the cache, and writes.
#include "device_code.cuh"
#include "kernels.hpp"

namespace train_gpt::gpu {
namespace {

constexpr int threads = 512, warps = threads / 32;

/// Sum of exp(x - maximum) over what has been seen.
struct Partial {
  float maximum = -INFINITY, sum = 0.0f;
};

__device__ inline Partial joined(Partial a, Partial b) {
  const float most = fmaxf(a.maximum, b.maximum);
  if (most == -INFINITY) return {most, a.sum + b.sum};
  return {most, a.sum * expf(a.maximum - most) + b.sum * expf(b.maximum - most)};
}

__device__ inline Partial warp_joined(Partial p) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Partial other{__shfl_xor_sync(whole_warp, p.maximum, distance),
                        __shfl_xor_sync(whole_warp, p.sum, distance)};
    p = threadIdx.x & distance ? joined(other, p) : joined(p, other);
  }
  return p;
}

__device__ inline Partial block_joined(Partial p) {
  __shared__ Partial of_warp[warps];
  p = warp_joined(p);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = p;
  __syncthreads();
  Partial total = of_warp[0];
  for (int w = 1; w < warps; ++w) total = joined(total, of_warp[w]);
  return total;
}

template <int n, class T>
__global__ void __launch_bounds__(threads)
    cross_entropy_kernel(T* logits, float* losses, const std::int32_t* targets,
                         const float* loss_scale, double tokens, std::int64_t classes) {
  T* const row = logits + blockIdx.x * classes;
  const std::int32_t target = targets[blockIdx.x];
  const float wanted = to_float(row[target]);
  Partial own;
  for (std::int64_t i = threadIdx.x * n; i < classes; i += threads * n) {
    float x[n];
    load_floats(x, row + i);
    float most = own.maximum, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < n; ++j) most = fmaxf(most, x[j]);
#pragma unroll
    for (int j = 0; j < n; ++j) sum += exponential<T>(x[j] - most);
    own = {most, own.sum * exponential<T>(own.maximum - most) + sum};
  }
  const Partial total = block_joined(own);  // all have read the wanted logit by then
  const float scale = static_cast<float>(static_cast<double>(*loss_scale) / tokens);
  const float factor = scale / total.sum;
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(total.sum) - (wanted - total.maximum);
  const std::int64_t own_end = (classes - 1 - threadIdx.x * n) / (threads * n) * (threads * n);
  if (static_cast<std::int64_t>(threadIdx.x) * n < classes)
    for (std::int64_t i = own_end + threadIdx.x * n; i >= 0; i -= threads * n) {
      float x[n];
      load_floats(x, row + i);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        x[j] = exponential<T>(x[j] - total.maximum) * factor;
        if (i + j == target) x[j] -= scale;
      }
      store_floats(row + i, x);
    }
}

/// One block.
__global__ void add_mean_loss_kernel(double* mean, const float* losses, std::int64_t rows,
                                     double divisor) {
  __shared__ double of_thread[threads];
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < rows; i += threads) sum += static_cast<double>(losses[i]);
  of_thread[threadIdx.x] = sum;
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half)
      of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *mean += of_thread[0] / divisor;
}

}  // namespace

template <class T>
void cross_entropy(T* logits, float* losses, const std::int32_t* targets, const float* loss_scale,
                   std::int64_t tokens, std::int64_t rows, std::int64_t classes,
                   StreamHandle stream) {
  using D = DeviceType<T>;
  launch("cross_entropy",
         are_vectors<T>(classes, logits) ? cross_entropy_kernel<vector_width<T>, D>
                                         : cross_entropy_kernel<1, D>,
         dim3(static_cast<unsigned>(rows)), dim3(threads), 0, stream, native(logits), losses,
         targets, loss_scale, static_cast<double>(tokens), classes);
}

void add_mean_loss(double* mean, const float* losses, std::int64_t rows, double parts,
                   StreamHandle stream) {
  launch("add_mean_loss", add_mean_loss_kernel, dim3(1), dim3(threads), 0, stream, mean, losses,
         rows, static_cast<double>(rows) * parts);
}

#define TRAIN_GPT_INSTANTIATE(T)                                                           \
  template void cross_entropy(T*, float*, const std::int32_t*, const float*, std::int64_t, \
                              std::int64_t, std::int64_t, StreamHandle);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(flatshard::Bf16)
TRAIN_GPT_INSTANTIATE(flatshard::Half)

}  // namespace train_gpt::gpu
