// Enters the steps of the library's own optimizers into ops/cuda_steps.hpp. They are files of their
// own, because they take minutes to compile together.
#pragma once

namespace flatshard::cuda {

void register_adamw();
void register_sgd();
void register_lion();
void register_adagrad();
void register_moments();  // Adam, AMSGrad, NAdam
void register_rmsprop();

}  // namespace flatshard::cuda
