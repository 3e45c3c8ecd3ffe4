// What ties a CudaDevice to its kernels, which the layer of the device does not know.
#include "cuda_kernels.hpp"

#include <flatshard/ops/host_device.hpp>

#include "../core/cuda_device_parts.hpp"

namespace flatshard {

CudaDevice::CudaDevice(int ordinal, const CudaOptions& options)
    : parts_(std::make_unique<Parts>(ordinal, options)) {
  parts_->kernels = make_cuda_kernels(ordinal);
  parts_->make_host_kernels = [chosen = parts_->options] {
    return std::shared_ptr<const KernelTable>(
        make_host_kernels({.threads = chosen.host_threads, .pin_as_rank = chosen.pin_as_rank}));
  };
}

}  // namespace flatshard
