#include "cuda_check.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

namespace flatshard::detail {

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
  static_cast<void>(cudaGetLastError());  // else the next check of somebody else would find it
  int device = -1;
  static_cast<void>(cudaGetDevice(&device));
  throw DeviceError(
      fmt::format("{} failed on device {}: {} ({}): {}", call, device, cudaGetErrorName(error),
                  static_cast<int>(error), cudaGetErrorString(error)),
      {file, line});
}

CudaDeviceGuard::CudaDeviceGuard(int ordinal) {
  int current = -1;
  FLATSHARD_CHECK_CUDA(cudaGetDevice(&current));
  if (current == ordinal) return;
  FLATSHARD_CHECK_CUDA(cudaSetDevice(ordinal));
  before_ = current;
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (before_ >= 0) ignore_cuda(cudaSetDevice(before_));
}

}  // namespace flatshard::detail
