#pragma once
// What the one source file per instruction set exports.

#include "kernels.hpp"

namespace train_gpt {

const Kernels<float>& baseline_float();
const Kernels<double>& baseline_double();
const Kernels<float>& avx2_float();
const Kernels<double>& avx2_double();
const Kernels<float>& avx512_float();
const Kernels<double>& avx512_double();

}  // namespace train_gpt
