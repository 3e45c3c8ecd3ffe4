// The step of Lion, in all rows.
#include <flatshard/ops/lion.hpp>

#include "builtin_steps.hpp"
#include "step.cuh"

namespace flatshard::cuda {

void register_lion() { register_cuda_step(typeid(Lion), find_cuda_step<Lion>); }

}  // namespace flatshard::cuda
