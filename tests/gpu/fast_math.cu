#include "fast_math.hpp"

#include "../../kernels/cuda/dtype_pack.cuh"
#include "../../kernels/cuda/step.cuh"

namespace flatshard_test {
namespace {

const cuda::RegisterStep<UnderFastMath<AdamW>, FastMathRows> adamw;
const cuda::RegisterStep<UnderFastMath<SGD>, FastMathRows> sgd;
const cuda::RegisterStep<UnderFastMath<Lion>, FastMathRows> lion;
const cuda::RegisterStep<UnderFastMath<Adagrad>, FastMathRows> adagrad;
const cuda::RegisterStep<UnderFastMath<AMSGrad>, FastMathRows> amsgrad;
const cuda::RegisterStep<UnderFastMath<NAdam>, FastMathRows> nadam;
const cuda::RegisterStep<UnderFastMath<CenteredRMSPropMomentum>, FastMathRows> rmsprop;

__global__ void convert_kernel(const void* source, DType from, void* destination, DType to,
                               Elements count) {
  const Elements i = Elements{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  cuda::with_element(from, [&](auto source_element) {
    using From = decltype(source_element);
    cuda::with_element(to, [&](auto element) {
      using To = decltype(element);
      static_cast<To*>(destination)[i] = convert<To>(static_cast<const From*>(source)[i]);
    });
  });
}

}  // namespace

void convert_under_fast_math(const void* source, DType from, void* destination, DType to,
                             Elements count, void* stream) {
  convert_kernel<<<static_cast<unsigned>(cuda::blocks_for(count)), cuda::block_threads, 0,
                   static_cast<cudaStream_t>(stream)>>>(source, from, destination, to, count);
}

}  // namespace flatshard_test
