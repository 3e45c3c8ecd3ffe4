// What ties a CudaDevice to its kernels, which the layer of the device does not know.
#include "cuda_kernels.hpp"

#include "../core/cuda_device_parts.hpp"

namespace flatshard {

CudaDevice::CudaDevice(int ordinal) : parts_(std::make_unique<Parts>(ordinal)) {
  parts_->kernels = make_cuda_kernels(ordinal);
}

}  // namespace flatshard
