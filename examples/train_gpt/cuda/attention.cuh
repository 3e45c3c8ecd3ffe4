#pragma once
// Which attention kernel takes which heads, and in which tiles. Instantiated in one file per type,
// because each takes its time to compile.
#include "attention_launch.cuh"
#include "attention_plain_backward.cuh"
#include "kernels.hpp"

namespace train_gpt::gpu {
namespace {

/// The tiles that were fastest on an H200: bench/baselines/cuda_train_gpt.md.
template <int D>
struct Tiles {
  using Forward = ForwardTiling<D, 2, 4>;
  using Keys = KeyTiling<D, 4, 64>;
  using Queries = QueryTiling<D, 2, 4, 32>;
};

/// function(std::integral_constant<int, D>) for heads that tensor cores take; false for others.
template <class T, class Function>
bool with_tensor_cores(const AttentionShape& shape, Function function, const void* a,
                       const void* b) {
  if (sizeof(T) != 2 || !are_vectors<T>(vector_width<T>, a, b)) return false;
  switch (shape.head_width) {
    case 32:
      return function(std::integral_constant<int, 32>{}), true;
    case 64:
      return function(std::integral_constant<int, 64>{}), true;
    case 128:
      return function(std::integral_constant<int, 128>{}), true;
    default:
      return false;
  }
}

template <class T>
void plain_forward(T* out, float* lse, const T* qkv, const AttentionShape& s, StreamHandle stream) {
  const int width = static_cast<int>(s.head_width);
  launch("attention_forward", attention_plain_forward_kernel<T>, attention_grid(s, plain_rows),
         dim3(plain_threads), plain_shared(width, 3, 1), stream, out, lse, qkv, view_of(s), width);
}

template <class T, bool of_keys>
void plain_backward(T* dqkv, const T* qkv, const T* dout, const float* lse, const float* delta,
                    const AttentionShape& s, StreamHandle stream) {
  const int width = static_cast<int>(s.head_width);
  launch("attention_backward", attention_plain_backward_kernel<T, of_keys>,
         attention_grid(s, plain_rows), dim3(plain_threads),
         plain_shared(width, of_keys ? 6 : 5, 2), stream, dqkv, qkv, dout, lse, delta, view_of(s),
         width);
}

}  // namespace

template <class T>
void attention_forward(T* out, float* lse, const T* qkv, const AttentionShape& s,
                       StreamHandle stream) {
  using N = DeviceType<T>;
  const auto by_tensor_cores = [&](auto width) {
    if constexpr (sizeof(T) == 2)
      launch_forward<N, typename Tiles<width()>::Forward>(native(out), lse, native(qkv), s, stream);
  };
  if (!with_tensor_cores<T>(s, by_tensor_cores, out, qkv))
    plain_forward(native(out), lse, native(qkv), s, stream);
}

template <class T>
void attention_backward(T* dqkv, float* delta, const T* dout, const T* qkv, const T* out,
                        const float* lse, const AttentionShape& s, StreamHandle stream) {
  using N = DeviceType<T>;
  const auto by_tensor_cores = [&](auto width) {
    if constexpr (sizeof(T) == 2) {
      using Chosen = Tiles<width()>;
      launch_delta_of_vectors<N, width()>(delta, native(out), native(dout), s, stream);
      launch_backward_keys<N, typename Chosen::Keys>(native(dqkv), native(qkv), native(dout), lse,
                                                     delta, s, stream);
      launch_backward_queries<N, typename Chosen::Queries>(native(dqkv), native(qkv), native(dout),
                                                           lse, delta, s, stream);
    }
  };
  if (with_tensor_cores<T>(s, by_tensor_cores, dqkv, qkv)) return;
  launch_delta(delta, native(out), native(dout), s, stream);
  plain_backward<N, true>(native(dqkv), native(qkv), native(dout), lse, delta, s, stream);
  plain_backward<N, false>(native(dqkv), native(qkv), native(dout), lse, delta, s, stream);
}

#define TRAIN_GPT_INSTANTIATE(T)                                                              \
  template void attention_forward(T*, float*, const T*, const AttentionShape&, StreamHandle); \
  template void attention_backward(T*, float*, const T*, const T*, const T*, const float*,    \
                                   const AttentionShape&, StreamHandle);

}  // namespace train_gpt::gpu
