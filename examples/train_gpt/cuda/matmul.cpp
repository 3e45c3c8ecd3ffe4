#include "cuda/matmul.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <cublasLt.h>

#include <map>
#include <string>
#include <tuple>
#include <type_traits>

namespace train_gpt::gpu {
namespace {

constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper
constexpr std::uint32_t alignment = 16;                         // bytes, of every operand

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw flatshard::DeviceError(std::string{call} + ": " + cublasLtGetStatusString(status));
}

template <class T>
constexpr cudaDataType_t cuda_type = CUDA_R_32F;
template <>
constexpr cudaDataType_t cuda_type<flatshard::Bf16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t cuda_type<flatshard::Half> = CUDA_R_16F;

/// D (m, n) = A (m, k) B (k, n) + beta C, column-major as cuBLAS counts: a row-major matrix is its
/// transpose.
struct Product {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  cublasLtEpilogue_t epilogue;
  bool adds;  // beta = 1
  cudaDataType_t result;
  auto key() const {
    return std::tuple(transpose_a, transpose_b, m, n, k, static_cast<int>(epilogue), adds,
                      static_cast<int>(result));
  }
};

struct Operands {
  const void *a, *b, *c;
  void* d;
  const void* bias;
  void* before_gelu;
};

/// cuBLASLt's objects for one Product.
class Choice {
 public:
  Choice(cublasLtHandle_t handle, const Product& p, cudaDataType_t input);
  ~Choice();
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;
  bool exists() const { return exists_; }
  void run(cublasLtHandle_t handle, const Operands& o, void* workspace, StreamHandle stream) const;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows,
                                       std::int64_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    return made;
  }
  void choose(cublasLtHandle_t handle);

  bool adds_, exists_ = false;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

Choice::Choice(cublasLtHandle_t handle, const Product& p, cudaDataType_t input) : adds_{p.adds} {
  check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const cublasOperation_t none = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? transposed : none);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? transposed : none);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  if (p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, p.result);
  }
  a_ = p.transpose_a ? layout(input, p.k, p.m) : layout(input, p.m, p.k);
  b_ = p.transpose_b ? layout(input, p.n, p.k) : layout(input, p.k, p.n);
  d_ = layout(p.result, p.m, p.n);
  choose(handle);
}

Choice::~Choice() {
  for (const cublasLtMatrixLayout_t made : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(made);
  cublasLtMatmulDescDestroy(operation_);
}

void Choice::choose(cublasLtHandle_t handle) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &workspace_bytes, sizeof workspace_bytes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation_, a_, b_, d_, d_,
                                                               preference, 1, &chosen_, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  exists_ = status == CUBLAS_STATUS_SUCCESS && found > 0;
}

void Choice::run(cublasLtHandle_t handle, const Operands& o, void* workspace,
                 StreamHandle stream) const {
  if (o.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  if (o.before_gelu != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.before_gelu);
  const float one = 1.0f, beta = adds_ ? 1.0f : 0.0f;
  check(cublasLtMatmul(handle, operation_, &one, o.a, a_, o.b, b_, &beta, adds_ ? o.c : o.d, d_,
                       o.d, d_, &chosen_.algo, workspace, workspace_bytes, stream),
        "cublasLtMatmul");
}

}  // namespace

template <class T>
struct Matmul<T>::Parts {
  Parts(flatshard::MemoryResource& memory, StreamHandle on)
      : workspace(memory, static_cast<flatshard::Bytes>(workspace_bytes)), stream(on) {
    check(cublasLtCreate(&handle), "cublasLtCreate");
  }
  ~Parts() {
    choices.clear();
    cublasLtDestroy(handle);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  /// False where cuBLASLt has no kernel.
  bool try_run(const Product& product, const Operands& operands) {
    const auto [place, is_new] = choices.try_emplace(product.key());
    if (is_new) place->second = std::make_unique<Choice>(handle, product, cuda_type<T>);
    if (!place->second->exists()) return false;
    place->second->run(handle, operands, workspace.data(), stream);
    return true;
  }
  void run(const Product& p, const Operands& operands) {
    if (!try_run(p, operands))
      throw flatshard::DeviceError(
          "cublasLtMatmulAlgoGetHeuristic: no kernel for a matrix product of " +
          std::to_string(p.m) + " x " + std::to_string(p.k) + " x " + std::to_string(p.n));
  }

  cublasLtHandle_t handle = nullptr;
  flatshard::Buffer workspace;
  StreamHandle stream;
  std::map<decltype(Product{}.key()), std::unique_ptr<Choice>> choices;
};

template <class T>
Matmul<T>::Matmul(flatshard::MemoryResource& memory, StreamHandle stream)
    : parts_{std::make_unique<Parts>(memory, stream)} {}
template <class T>
Matmul<T>::~Matmul() = default;

template <class T>
void Matmul<T>::forward(T* y, const T* x, const T* weight, const T* bias, const T* residual,
                        std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  parts_->run({true, false, outputs, rows, inputs,
               bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
               residual != nullptr, cuda_type<T>},
              {weight, x, residual, y, bias, nullptr});
}

template <class T>
bool Matmul<T>::forward_gelu(T* y, T* z, const T* x, const T* weight, const T* bias,
                             std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  if (std::is_same_v<T, float> || outputs % 8 != 0) return false;
  return parts_->try_run(
      {true, false, outputs, rows, inputs, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, false, cuda_type<T>},
      {weight, x, nullptr, y, bias, z});
}

template <class T>
void Matmul<T>::input_gradient(T* dx, const T* dy, const T* weight, std::int64_t rows,
                               std::int64_t inputs, std::int64_t outputs) {
  parts_->run({false, false, inputs, rows, outputs, CUBLASLT_EPILOGUE_DEFAULT, false, cuda_type<T>},
              {weight, dy, nullptr, dx, nullptr, nullptr});
}

template <class T>
template <class Result>
void Matmul<T>::weight_gradient(Result* dweight, bool accumulate, const T* dy, const T* x,
                                std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  parts_->run({false, true, inputs, outputs, rows, CUBLASLT_EPILOGUE_DEFAULT, accumulate,
               cuda_type<Result>},
              {x, dy, dweight, dweight, nullptr, nullptr});
}

#define TRAIN_GPT_INSTANTIATE(T)                                                       \
  template class Matmul<T>;                                                            \
  template void Matmul<T>::weight_gradient(T*, bool, const T*, const T*, std::int64_t, \
                                           std::int64_t, std::int64_t);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(flatshard::Bf16)
TRAIN_GPT_INSTANTIATE(flatshard::Half)
template void Matmul<flatshard::Bf16>::weight_gradient(float*, bool, const flatshard::Bf16*,
                                                       const flatshard::Bf16*, std::int64_t,
                                                       std::int64_t, std::int64_t);
template void Matmul<flatshard::Half>::weight_gradient(float*, bool, const flatshard::Half*,
                                                       const flatshard::Half*, std::int64_t,
                                                       std::int64_t, std::int64_t);

}  // namespace train_gpt::gpu
