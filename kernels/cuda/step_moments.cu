// The steps of Adam, AMSGrad and NAdam, in all rows.
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>

#include "builtin_steps.hpp"
#include "step.cuh"

namespace flatshard::cuda {

void register_moments() {
  register_cuda_step(typeid(Adam), find_cuda_step<Adam>);
  register_cuda_step(typeid(AMSGrad), find_cuda_step<AMSGrad>);
  register_cuda_step(typeid(NAdam), find_cuda_step<NAdam>);
}

}  // namespace flatshard::cuda
