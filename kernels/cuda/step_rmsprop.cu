// The steps of RMSProp, with and without momentum and centring, in all rows.
#include <flatshard/ops/rmsprop.hpp>

#include "builtin_steps.hpp"
#include "step.cuh"

namespace flatshard::cuda {

void register_rmsprop() {
  register_cuda_step(typeid(RMSProp), find_cuda_step<RMSProp>);
  register_cuda_step(typeid(RMSPropMomentum), find_cuda_step<RMSPropMomentum>);
  register_cuda_step(typeid(CenteredRMSProp), find_cuda_step<CenteredRMSProp>);
  register_cuda_step(typeid(CenteredRMSPropMomentum), find_cuda_step<CenteredRMSPropMomentum>);
}

}  // namespace flatshard::cuda
