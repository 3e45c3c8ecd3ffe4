#pragma once
// The attention kernels for any tiling.
#include "attention_backward_keys.cuh"
#include "attention_backward_queries.cuh"
#include "attention_delta.cuh"
#include "attention_forward.cuh"
#include "kernels.hpp"

namespace train_gpt::gpu {

inline AttentionView view_of(const AttentionShape& s) {
  return {static_cast<int>(s.context), static_cast<int>(s.heads),
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_width)))};
}

inline dim3 attention_grid(const AttentionShape& s, std::int64_t rows_per_block) {
  return dim3(static_cast<unsigned>(s.sequences * s.heads), blocks_of(s.context, rows_per_block));
}

template <class T, class Tiling>
void launch_forward(T* out, float* lse, const T* qkv, const AttentionShape& s,
                    StreamHandle stream) {
  launch("attention_forward", attention_forward_kernel<T, Tiling>,
         attention_grid(s, Tiling::queries), dim3(Tiling::threads), Tiling::shared, stream, out,
         lse, qkv, view_of(s));
}

template <class T>
void launch_delta(float* delta, const T* out, const T* dout, const AttentionShape& s,
                  StreamHandle stream) {
  const std::int64_t rows = s.sequences * s.context;
  launch("attention_delta", attention_delta_kernel<T>, dim3(blocks_of(rows * s.heads, 8)),
         dim3(256), 0, stream, delta, out, dout, rows, static_cast<int>(s.context),
         static_cast<int>(s.heads), static_cast<int>(s.head_width));
}

template <class T, int D>
void launch_delta_of_vectors(float* delta, const T* out, const T* dout, const AttentionShape& s,
                             StreamHandle stream) {
  const std::int64_t pairs = s.sequences * s.context * s.heads;
  launch("attention_delta", attention_delta_of_vectors_kernel<T, D>,
         dim3(blocks_of(pairs * (D / vector_width<T>), 256)), dim3(256), 0, stream, delta, out,
         dout, pairs, static_cast<int>(s.context), static_cast<int>(s.heads));
}

template <class T, class Tiling>
void launch_backward_keys(T* dqkv, const T* qkv, const T* dout, const float* lse,
                          const float* delta, const AttentionShape& s, StreamHandle stream) {
  launch("attention_backward", attention_backward_keys_kernel<T, Tiling>,
         attention_grid(s, Tiling::keys), dim3(Tiling::threads), Tiling::shared, stream, dqkv, qkv,
         dout, lse, delta, view_of(s));
}

template <class T, class Tiling>
void launch_backward_queries(T* dqkv, const T* qkv, const T* dout, const float* lse,
                             const float* delta, const AttentionShape& s, StreamHandle stream) {
  launch("attention_backward", attention_backward_queries_kernel<T, Tiling>,
         attention_grid(s, Tiling::queries), dim3(Tiling::threads), Tiling::shared, stream, dqkv,
         qkv, dout, lse, delta, view_of(s));
}

}  // namespace train_gpt::gpu
