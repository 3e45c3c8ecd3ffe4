// The step of AdamW, in all rows.
#include <flatshard/ops/adamw.hpp>

#include "builtin_steps.hpp"
#include "step.cuh"

namespace flatshard::cuda {

void register_adamw() { register_cuda_step(typeid(AdamW), find_cuda_step<AdamW>); }

}  // namespace flatshard::cuda
