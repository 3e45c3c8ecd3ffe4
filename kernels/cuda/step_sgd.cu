// The step of SGD, in all rows.
#include <flatshard/ops/sgd.hpp>

#include "builtin_steps.hpp"
#include "step.cuh"

namespace flatshard::cuda {

void register_sgd() { register_cuda_step(typeid(SGD), find_cuda_step<SGD>); }

}  // namespace flatshard::cuda
