// Enters the steps of the library's own optimizers into ops/cuda_steps.hpp. Each is a file of its
// own, because they take minutes to compile together.
#pragma once

namespace flatshard::cuda {

void register_adamw();
void register_sgd();
void register_lion();
void register_adagrad();

}  // namespace flatshard::cuda
