// The step of Adagrad, in all rows.
#include <flatshard/ops/adagrad.hpp>

#include "builtin_steps.hpp"
#include "step.cuh"

namespace flatshard::cuda {

void register_adagrad() { register_cuda_step(typeid(Adagrad), find_cuda_step<Adagrad>); }

}  // namespace flatshard::cuda
