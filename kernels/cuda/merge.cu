// Adds among nodes of the norm's tree: one block, level by level.
#include "launchers.hpp"
#include "norm_tree.cuh"

namespace flatshard::cuda {
namespace {

constexpr int shared_values = 4096;  // that fit a block's shared memory

template <class Form>
__device__ void merge_levels(const NormAdd* adds, const int* ends, int levels, double* values) {
  int begin = 0;
  for (int level = 0; level < levels; ++level) {
    for (int k = begin + static_cast<int>(threadIdx.x); k < ends[level]; k += block_threads)
      values[adds[k].into] = Form::merge(values[adds[k].into], values[adds[k].from]);
    begin = ends[level];
    __syncthreads();
  }
}

template <class Form, bool Shared>
__global__ void __launch_bounds__(block_threads)
    merge_kernel(const NormAdd* __restrict__ adds, const int* __restrict__ ends, int levels,
                 int value_count, double* values) {
  if constexpr (Shared) {
    __shared__ double copy[shared_values];
    for (int k = threadIdx.x; k < value_count; k += block_threads) copy[k] = values[k];
    __syncthreads();
    merge_levels<Form>(adds, ends, levels, copy);
    for (int k = threadIdx.x; k < value_count; k += block_threads) values[k] = copy[k];
  } else {
    merge_levels<Form>(adds, ends, levels, values);
  }
}

template <class Form>
void launch_merge_as(const NormAdd* adds, const int* ends, int levels, int value_count,
                     double* values, cudaStream_t stream) {
  if (value_count <= shared_values)
    merge_kernel<Form, true>
        <<<1, block_threads, 0, stream>>>(adds, ends, levels, value_count, values);
  else
    merge_kernel<Form, false>
        <<<1, block_threads, 0, stream>>>(adds, ends, levels, value_count, values);
}

}  // namespace

void launch_merge(NormForm form, const NormAdd* adds, const int* ends, int levels, int value_count,
                  double* values, cudaStream_t stream) {
  if (form == NormForm::Squares)
    launch_merge_as<Squares>(adds, ends, levels, value_count, values, stream);
  else
    launch_merge_as<Maxima>(adds, ends, levels, value_count, values, stream);
}

}  // namespace flatshard::cuda
