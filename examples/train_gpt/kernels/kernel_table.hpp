#pragma once
// The table of one instruction set, from the functions local to the file that includes it.

#include "elementwise_kernel.hpp"
#include "gemm_kernel.hpp"

namespace train_gpt {
namespace {

template <class Real>
inline constexpr Kernels<Real> table{instruction_set_name,
                                     gemm<Real>,
                                     gelu_forward<Real>,
                                     gelu_backward<Real>,
                                     layernorm_forward<Real>,
                                     layernorm_backward<Real>,
                                     causal_softmax_forward<Real>,
                                     causal_softmax_backward<Real>,
                                     cross_entropy<Real>,
                                     add<Real>,
                                     column_sum<Real>};

}  // namespace
}  // namespace train_gpt
