// Initial values, the decision about a step, and small host tables.
#include <algorithm>
#include <cstring>

#include "dtype_pack.cuh"
#include "launchers.hpp"

namespace flatshard::cuda {
namespace {

template <class Init>
__global__ void __launch_bounds__(block_threads)
    fill_kernel(Init initializer, DType dtype, void* destination, Elements canonical,
                Elements count) {
  const Elements index = Elements{blockIdx.x} * block_threads + threadIdx.x;
  if (index >= count) return;
  const double value = initializer.value(canonical + index);
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    static_cast<Element*>(destination)[index] = from_double<Element>(value);
  });
}

/// The time steps of all flats at once; one thread decides.
__global__ void __launch_bounds__(block_threads)
    conclude_kernel(const __grid_constant__ ConcludeArguments arguments) {
  if (threadIdx.x == 0) {
    ConcludeArguments decision = arguments;
    decision.flats = 0;
    conclude(decision);
  }
  __syncthreads();
  if (arguments.control->scalars.apply == 0) return;
  for (Elements k = threadIdx.x; k < arguments.flats; k += block_threads)
    if (arguments.takes_part == nullptr || arguments.takes_part[k] != 0) ++arguments.times[k];
}

template <int Size>
struct Parameters {
  alignas(8) unsigned char at[Size];
};

template <int Size>
__global__ void upload_kernel(const __grid_constant__ Parameters<Size> source, unsigned char* to,
                              int bytes) {
  for (int i = threadIdx.x; i < bytes; i += block_threads) to[i] = source.at[i];
}

template <int Size>
void upload_part(const void* source, void* destination, Bytes bytes, cudaStream_t stream) {
  Parameters<Size> part;
  std::memcpy(part.at, source, static_cast<std::size_t>(bytes));
  upload_kernel<<<1, block_threads, 0, stream>>>(part, static_cast<unsigned char*>(destination),
                                                 static_cast<int>(bytes));
}

}  // namespace

void launch_fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical,
                 Elements count, cudaStream_t stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(blocks_for(count));
  std::visit(
      [&](const auto& init) {
        fill_kernel<<<blocks, block_threads, 0, stream>>>(init, dtype, destination, canonical,
                                                          count);
      },
      initializer);
}

void launch_conclude(const ConcludeArguments& arguments, cudaStream_t stream) {
  conclude_kernel<<<1, block_threads, 0, stream>>>(arguments);
}

void launch_upload(const void* source, void* destination, Bytes bytes, cudaStream_t stream) {
  constexpr Bytes small = 512, medium = 8192, large = 32256;  // parameters end at 32764
  for (Bytes done = 0; done < bytes; done += large) {
    const auto* from = static_cast<const std::byte*>(source) + done;
    auto* to = static_cast<std::byte*>(destination) + done;
    const Bytes part = std::min(large, bytes - done);
    if (part <= small)
      upload_part<small>(from, to, part, stream);
    else if (part <= medium)
      upload_part<medium>(from, to, part, stream);
    else
      upload_part<large>(from, to, part, stream);
  }
}

}  // namespace flatshard::cuda
