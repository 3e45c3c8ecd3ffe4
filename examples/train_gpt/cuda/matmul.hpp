#pragma once
// Matrix products by cuBLASLt: 16-bit operands with fp32 sums, or fp32 throughout (no TF32).

#include <flatshard/core/buffer.hpp>

#include <memory>

#include "cuda/kernels.hpp"

namespace train_gpt::gpu {

/// The products of linear layers y = x W^T + b; x (R, I), W (O, I), b (O), y (R, O), all row-major
/// and aligned to 16 bytes. What is chosen for a shape is chosen once, by cuBLASLt's heuristic, so
/// equal calls give equal bits. One stream, one thread.
template <class T>
class Matmul {
 public:
  /// Takes its workspace from `memory`; works on the current CUDA device.
  Matmul(flatshard::MemoryResource& memory, StreamHandle stream);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// y = x W^T, + bias and + residual (R, O) where these are not null.
  void forward(T* y, const T* x, const T* weight, const T* bias, const T* residual,
               std::int64_t rows, std::int64_t inputs, std::int64_t outputs);
  /// y = GELU(z), z = x W^T + bias, in one kernel. False, and nothing done, where there is none.
  bool forward_gelu(T* y, T* z, const T* x, const T* weight, const T* bias, std::int64_t rows,
                    std::int64_t inputs, std::int64_t outputs);
  /// dx = dy W.
  void input_gradient(T* dx, const T* dy, const T* weight, std::int64_t rows, std::int64_t inputs,
                      std::int64_t outputs);
  /// dW = dy^T x, added to what is there if `accumulate`. Result: T or float.
  template <class Result>
  void weight_gradient(Result* dweight, bool accumulate, const T* dy, const T* x, std::int64_t rows,
                       std::int64_t inputs, std::int64_t outputs);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace train_gpt::gpu
