#pragma once
// What the GPT computes with on a GPU, beside matrix products. Everything is enqueued on the
// stream and deterministic: sums have a fixed order, nothing is added atomically. T: float,
// flatshard::Bf16 or flatshard::Half; arithmetic is fp32. Matrices are dense and row-major, rows
// are tokens. Pointers are device memory unless a comment says otherwise; with 16-byte alignment
// and widths of whole 16-byte vectors they are read by vectors, else element by element.

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace train_gpt::gpu {

using StreamHandle = CUstream_st*;  // cudaStream_t

/// out (R, C) = wte[tokens[r]] + wpe[r % context].
template <class T>
void embed_forward(T* out, const T* wte, const T* wpe, const std::int32_t* tokens,
                   std::int64_t rows, std::int64_t context, std::int64_t width,
                   StreamHandle stream);

/// dwte (V, C) = head + the sum of gradient's rows with that token, in ascending order; `head`
/// (V, C), the output layer's part of a tied embedding, may be null. order (R): rows by token;
/// begin (V + 1): where each token's rows begin in it.
template <class T>
void embed_backward_tokens(T* dwte, const float* head, const T* gradient, const std::int32_t* order,
                           const std::int32_t* begin, std::int64_t vocabulary, std::int64_t width,
                           StreamHandle stream);

/// dwpe (context, C) = sum over sequences of gradient (sequences, context, C).
template <class T>
void embed_backward_positions(T* dwpe, const T* gradient, std::int64_t sequences,
                              std::int64_t context, std::int64_t width, StreamHandle stream);

/// out = (x - mean) * rstd * weight + bias per row; mean and rstd (rows) are kept for backward.
template <class T>
void layernorm_forward(T* out, float* mean, float* rstd, const T* x, const T* weight, const T* bias,
                       std::int64_t rows, std::int64_t width, StreamHandle stream);

/// dx = gradient, or dx += gradient. (The weights' gradients: layernorm_weight_gradients.)
template <class T>
void layernorm_backward(T* dx, bool accumulate, const T* dout, const T* x, const float* mean,
                        const float* rstd, const T* weight, std::int64_t rows, std::int64_t width,
                        StreamHandle stream);

/// out = GELU(x) in its tanh form.
template <class T>
void gelu_forward(T* out, const T* x, std::int64_t count, StreamHandle stream);

/// Floats of scratch that a column sum needs.
std::size_t column_scratch(std::int64_t rows, std::int64_t columns);

/// out (columns) = sum over rows of x.
template <class T>
void column_sum(T* out, const T* x, std::int64_t rows, std::int64_t columns, float* scratch,
                StreamHandle stream);

/// dx = dout * GELU'(x), which may lie where dout does; dbias (columns) = column sums of dx.
template <class T>
void gelu_backward(T* dx, T* dbias, const T* dout, const T* x, std::int64_t rows,
                   std::int64_t columns, float* scratch, StreamHandle stream);

/// dweight (C) = sum over rows of dout * (x - mean) * rstd; dbias (C) = sum over rows of dout.
template <class T>
void layernorm_weight_gradients(T* dweight, T* dbias, const T* dout, const T* x, const float* mean,
                                const float* rstd, std::int64_t rows, std::int64_t width,
                                float* scratch, StreamHandle stream);

/// Logits (rows, classes) become scale * (softmax - onehot(target)), scale = *loss_scale / tokens;
/// losses (rows) = -log softmax[target].
template <class T>
void cross_entropy(T* logits, float* losses, const std::int32_t* targets, const float* loss_scale,
                   std::int64_t tokens, std::int64_t rows, std::int64_t classes,
                   StreamHandle stream);

/// *mean += the sum of losses / rows / parts, in double.
void add_mean_loss(double* mean, const float* losses, std::int64_t rows, double parts,
                   StreamHandle stream);

/// out = in rounded to nearest.
template <class T>
void round_to(T* out, const float* in, std::int64_t count, StreamHandle stream);

struct AttentionShape {
  std::int64_t sequences, context, heads, head_width;
};

/// Throws flatshard::UsageError when the kernels do not take such heads (wider than 256).
void check_attention(const AttentionShape& shape);

/// out (R, C) = causal softmax(Q K^T / sqrt(D)) V for every head of qkv (R, 3C); lse (sequences, H,
/// T) is kept for backward. On tensor cores for 16-bit types and heads 32, 64 or 128 wide.
template <class T>
void attention_forward(T* out, float* lse, const T* qkv, const AttentionShape& shape,
                       StreamHandle stream);

/// dqkv (R, 3C) from dout (R, C); delta (sequences, H, T) is scratch.
template <class T>
void attention_backward(T* dqkv, float* delta, const T* dout, const T* qkv, const T* out,
                        const float* lse, const AttentionShape& shape, StreamHandle stream);

}  // namespace train_gpt::gpu
