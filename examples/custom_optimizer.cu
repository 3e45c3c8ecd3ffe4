// What nvcc must see of an optimizer of your own: from here on it runs on CUDA devices, too.
// Compile it with any flags and link it. (Installed, the header is <flatshard/cuda/step.cuh>.)
#include "custom_optimizer.hpp"

#include "../kernels/cuda/step.cuh"

namespace {

using flatshard::StepTypes;

// Storage of master, gradient, state and copy, for the precisions that the program uses; without a
// list it is built for all of them.
const flatshard::cuda::RegisterStep<
    LaProp, flatshard::StepRowList<StepTypes<float, float, float>,
                                   StepTypes<float, float, float, flatshard::Bf16>>>
    laprop;

}  // namespace
