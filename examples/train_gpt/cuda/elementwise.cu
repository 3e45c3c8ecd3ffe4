// GELU forward, rounding, and both directions of the embedding.
#include "device_code.cuh"
#include "gelu.cuh"
#include "kernels.hpp"

namespace train_gpt::gpu {
namespace {

constexpr int threads = 256;

/// One vector per thread, the rest by the last threads one by one.
template <int n, class T, class From, class Function>
__global__ void map_kernel(T* out, const From* in, std::int64_t count, Function function) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n;
  if (at + n <= count) {
    float x[n];
    load_floats(x, in + at);
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = function(x[i]);
    store_floats(out + at, x);
  } else {
    for (std::int64_t i = at; i < count; ++i) out[i] = from_float<T>(function(to_float(in[i])));
  }
}

template <class T, class From, class Function>
void map(const char* name, T* out, const From* in, std::int64_t count, Function function,
         StreamHandle stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(From));
  if (are_vectors<From>(n, in) && are_vectors<T>(16 / static_cast<int>(sizeof(T)), out))
    launch(name, map_kernel<n, T, From, Function>, dim3(blocks_of(count, threads * n)),
           dim3(threads), 0, stream, out, in, count, function);
  else
    launch(name, map_kernel<1, T, From, Function>, dim3(blocks_of(count, threads)), dim3(threads),
           0, stream, out, in, count, function);
}

template <class T>
struct Gelu {
  __device__ float operator()(float x) const { return gelu<T>(x); }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};

/// A block per row.
template <int n, class T>
__global__ void embed_forward_kernel(T* out, const T* wte, const T* wpe, const std::int32_t* tokens,
                                     std::int64_t context, std::int64_t width) {
  const std::int64_t row = blockIdx.x;
  const T* const token = wte + tokens[row] * width;
  const T* const position = wpe + row % context * width;
  for (std::int64_t i = threadIdx.x * n; i < width; i += blockDim.x * n) {
    float x[n], y[n];
    load_floats(x, token + i);
    load_floats(y, position + i);
#pragma unroll
    for (int j = 0; j < n; ++j) x[j] += y[j];
    store_floats(out + row * width + i, x);
  }
}

/// A block per token of the vocabulary.
template <int n, class T>
__global__ void embed_backward_kernel(T* dwte, const float* head, const T* gradient,
                                      const std::int32_t* order, const std::int32_t* begin,
                                      std::int64_t width) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t from = begin[token], to = begin[token + 1];
  for (std::int64_t i = threadIdx.x * n; i < width; i += blockDim.x * n) {
    float sum[n] = {};
    if (head != nullptr)
      for (int j = 0; j < n; ++j) sum[j] = head[token * width + i + j];
#pragma unroll 4
    for (std::int32_t r = from; r < to; ++r) {
      float x[n];
      load_floats(x, gradient + order[r] * width + i);
#pragma unroll
      for (int j = 0; j < n; ++j) sum[j] += x[j];
    }
    store_floats(dwte + token * width + i, sum);
  }
}

/// A block per position.
template <int n, class T>
__global__ void position_backward_kernel(T* dwpe, const T* gradient, std::int64_t sequences,
                                         std::int64_t context, std::int64_t width) {
  const std::int64_t position = blockIdx.x;
  for (std::int64_t i = threadIdx.x * n; i < width; i += blockDim.x * n) {
    float sum[n] = {};
    for (std::int64_t s = 0; s < sequences; ++s) {
      float x[n];
      load_floats(x, gradient + (s * context + position) * width + i);
#pragma unroll
      for (int j = 0; j < n; ++j) sum[j] += x[j];
    }
    store_floats(dwpe + position * width + i, sum);
  }
}

/// Threads for a row of `vectors` vectors: whole warps, at most 256.
dim3 row_block(std::int64_t vectors) {
  return dim3(static_cast<unsigned>(std::min<std::int64_t>((vectors + 31) / 32 * 32, threads)));
}

}  // namespace

template <class T>
void gelu_forward(T* out, const T* x, std::int64_t count, StreamHandle stream) {
  map("gelu_forward", native(out), native(x), count, Gelu<DeviceType<T>>{}, stream);
}

template <class T>
void round_to(T* out, const float* in, std::int64_t count, StreamHandle stream) {
  map("round_to", native(out), in, count, Same{}, stream);
}

template <class T>
void embed_forward(T* out, const T* wte, const T* wpe, const std::int32_t* tokens,
                   std::int64_t rows, std::int64_t context, std::int64_t width,
                   StreamHandle stream) {
  using D = DeviceType<T>;
  constexpr int n = vector_width<T>;
  const bool vectors = are_vectors<T>(width, out, wte, wpe);
  launch("embed_forward", vectors ? embed_forward_kernel<n, D> : embed_forward_kernel<1, D>,
         dim3(static_cast<unsigned>(rows)), row_block(vectors ? width / n : width), 0, stream,
         native(out), native(wte), native(wpe), tokens, context, width);
}

template <class T>
void embed_backward_tokens(T* dwte, const float* head, const T* gradient, const std::int32_t* order,
                           const std::int32_t* begin, std::int64_t vocabulary, std::int64_t width,
                           StreamHandle stream) {
  using D = DeviceType<T>;
  constexpr int n = vector_width<T>;
  const bool vectors = are_vectors<T>(width, dwte, gradient);
  launch("embed_backward_tokens",
         vectors ? embed_backward_kernel<n, D> : embed_backward_kernel<1, D>,
         dim3(static_cast<unsigned>(vocabulary)), row_block(vectors ? width / n : width), 0, stream,
         native(dwte), head, native(gradient), order, begin, width);
}

template <class T>
void embed_backward_positions(T* dwpe, const T* gradient, std::int64_t sequences,
                              std::int64_t context, std::int64_t width, StreamHandle stream) {
  using D = DeviceType<T>;
  constexpr int n = vector_width<T>;
  const bool vectors = are_vectors<T>(width, dwpe, gradient);
  launch("embed_backward_positions",
         vectors ? position_backward_kernel<n, D> : position_backward_kernel<1, D>,
         dim3(static_cast<unsigned>(context)), row_block(vectors ? width / n : width), 0, stream,
         native(dwpe), native(gradient), sequences, context, width);
}

#define TRAIN_GPT_INSTANTIATE(T)                                                                 \
  template void gelu_forward(T*, const T*, std::int64_t, StreamHandle);                          \
  template void round_to(T*, const float*, std::int64_t, StreamHandle);                          \
  template void embed_forward(T*, const T*, const T*, const std::int32_t*, std::int64_t,         \
                              std::int64_t, std::int64_t, StreamHandle);                         \
  template void embed_backward_tokens(T*, const float*, const T*, const std::int32_t*,           \
                                      const std::int32_t*, std::int64_t, std::int64_t,           \
                                      StreamHandle);                                             \
  template void embed_backward_positions(T*, const T*, std::int64_t, std::int64_t, std::int64_t, \
                                         StreamHandle);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(flatshard::Bf16)
TRAIN_GPT_INSTANTIATE(flatshard::Half)

}  // namespace train_gpt::gpu
