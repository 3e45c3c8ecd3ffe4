// What a CudaDevice is made of.
#pragma once

#include <flatshard/core/cuda_device.hpp>

#include <memory>
#include <string>

#include "cuda_memory.hpp"

namespace flatshard {

struct CudaDevice::Parts {
  explicit Parts(int number);

  int ordinal;
  std::string name;
  int priority;  // of the library's streams
  detail::CudaMemory memory;
  detail::PinnedMemory pinned;
  std::shared_ptr<const KernelTable> kernels;  // made by the layer above that knows them
};

}  // namespace flatshard
