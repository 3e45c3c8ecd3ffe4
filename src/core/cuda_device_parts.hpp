// What a CudaDevice is made of.
#pragma once

#include <flatshard/core/cuda_device.hpp>

#include <functional>
#include <memory>
#include <string>

#include "cuda_link.hpp"
#include "cuda_memory.hpp"

namespace flatshard {

struct CudaDevice::Parts {
  Parts(int number, const CudaOptions& chosen);

  int ordinal;
  CudaOptions options;  // as they are used
  std::string name;
  int priority;  // of the library's streams
  detail::CudaMemory memory;
  detail::PinnedMemory pinned;
  detail::PinnedCounters counters;
  std::shared_ptr<detail::DeviceMonitors> monitors = std::make_shared<detail::DeviceMonitors>();
  std::shared_ptr<const KernelTable> kernels;  // made by the layer above that knows them
  std::function<std::shared_ptr<const KernelTable>()> make_host_kernels;  // the same
  std::shared_ptr<const KernelTable> host_kernels;                        // on first use
};

}  // namespace flatshard
