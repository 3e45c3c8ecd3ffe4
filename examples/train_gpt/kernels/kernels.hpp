#pragma once

#include <flatshard/ops/instruction_set.hpp>

#include <cstdint>

namespace train_gpt {

/// C (m, n) = start + A (m, k) * B (k, n), every matrix given by a row and a column stride, so that
/// a transposed operand is the same memory with its strides exchanged.
/// Each element of C is one chain of fused multiply-adds over ascending k that begins with the
/// element of `start`: its bits depend on the inputs alone, not on blocking, position in memory or
/// instruction set. One of A's strides must be 1, and one of B's.
template <class Real>
struct MatrixProduct {
  std::int64_t m, n, k;
  const Real* a;
  std::int64_t a_row, a_column;  // elements between A(i, p) and A(i + 1, p), A(i, p + 1)
  const Real* b;
  std::int64_t b_row, b_column;
  Real* c;
  std::int64_t c_row;
  const Real* start;       // nullptr: zero. The same as c: accumulate
  std::int64_t start_row;  // 0: the same row (a bias) for every row of C
  Real* scratch;           // gemm_scratch_elements, aligned to 64 bytes
};

inline constexpr std::int64_t gemm_depth = 256;  // k per packed panel: 8 rows of A stay in L1
inline constexpr std::int64_t gemm_columns =
    512;  // columns per packed block of B: 512 KiB, half an L2
inline constexpr std::int64_t gemm_slivers = 4;   // of A^T packed at once: two cache lines a row
inline constexpr std::int64_t gemm_max_rows = 8;  // most rows of a register tile
inline constexpr std::int64_t gemm_scratch_elements = gemm_depth * (gemm_columns + 64) +
                                                      gemm_depth * gemm_slivers * gemm_max_rows +
                                                      64 * gemm_max_rows;

/// What the model computes with, compiled once per instruction set. All of them leave the same
/// bits: element-wise work rounds each product and each sum, sums over a row run in 16 lanes that a
/// fixed tree joins, sums over rows run in ascending order. Matrices are dense and row-major.
template <class Real>
struct Kernels {
  const char* name;
  void (*gemm)(const MatrixProduct<Real>&);
  /// out = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form of GELU.
  void (*gelu_forward)(Real* out, const Real* x, std::int64_t count);
  void (*gelu_backward)(Real* dx, const Real* x, const Real* dout, std::int64_t count);
  /// out = (x - mean) * rstd * weight + bias per row; mean and rstd (rows) are kept for backward.
  void (*layernorm_forward)(Real* out, Real* mean, Real* rstd, const Real* x, const Real* weight,
                            const Real* bias, std::int64_t rows, std::int64_t width);
  /// dx += gradient; dweight and dbias (width) are overwritten.
  void (*layernorm_backward)(Real* dx, Real* dweight, Real* dbias, const Real* dout, const Real* x,
                             const Real* mean, const Real* rstd, const Real* weight,
                             std::int64_t rows, std::int64_t width);
  /// Row i of `scores` (context, context) becomes softmax(scale * scores[i][0..i]), then zeros.
  void (*causal_softmax_forward)(Real* scores, Real scale, std::int64_t context);
  /// In place: gradients of the probabilities become gradients of the scores.
  void (*causal_softmax_backward)(Real* gradient, const Real* probabilities, Real scale,
                                  std::int64_t context);
  /// Logits (rows, classes) become gradient_scale * (softmax - onehot(target)); returns the sum of
  /// -log(softmax[target]) over rows.
  double (*cross_entropy)(Real* logits, const std::int32_t* targets, Real gradient_scale,
                          std::int64_t rows, std::int64_t classes);
  void (*add)(Real* out, const Real* a, const Real* b, std::int64_t count);
  /// out (columns) = sum of the rows of `x` in ascending order.
  void (*column_sum)(Real* out, const Real* x, std::int64_t rows, std::int64_t columns);
};

/// The kernels of one instruction set, which must be available.
/// Baseline has no fused multiply-add: the C library computes it exactly, about 100 times slower.
template <class Real>
const Kernels<Real>& kernels(flatshard::InstructionSet set);

}  // namespace train_gpt
