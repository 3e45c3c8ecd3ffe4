#include "cuda/device_model.hpp"

#include <flatshard/core/error.hpp>

#include <cuda_runtime_api.h>

#include <string>

namespace train_gpt::gpu {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw flatshard::DeviceError(std::string{call} + ": " + cudaGetErrorString(error));
}

int attribute(const flatshard::CudaDevice& device, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.ordinal()), "cudaDeviceGetAttribute");
  return value;
}

/// Datasheets: operations per second, and of how many multiprocessors.
struct Peak {
  int major, minor, multiprocessors;
  double half, single;
};
constexpr Peak peaks[] = {{8, 0, 108, 312e12, 19.5e12},   // A100
                          {9, 0, 132, 989e12, 67e12},     // H100 and H200, SXM
                          {10, 0, 148, 2250e12, 75e12}};  // B200

}  // namespace

void use_device(const flatshard::CudaDevice& device) {
  check(cudaSetDevice(device.ordinal()), "cudaSetDevice");
}

double peak_flops(const flatshard::CudaDevice& device, flatshard::DType compute) {
  const int major = attribute(device, cudaDevAttrComputeCapabilityMajor);
  const int minor = attribute(device, cudaDevAttrComputeCapabilityMinor);
  for (const Peak& peak : peaks)
    if (peak.major == major && peak.minor == minor)
      return (compute == flatshard::DType::Float32 ? peak.single : peak.half) *
             attribute(device, cudaDevAttrMultiProcessorCount) / peak.multiprocessors;
  return 0;
}

}  // namespace train_gpt::gpu
