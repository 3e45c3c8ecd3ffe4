// Checks of CUDA calls: what fails becomes a DeviceError, and the error that the runtime would
// report again with the next call is cleared.
#pragma once

#include <cuda_runtime_api.h>

namespace flatshard::detail {

[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line);

inline void check_cuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) throw_cuda_error(error, call, file, line);
}

/// For destructors: drops the error, be it that the runtime is already unloaded.
inline void ignore_cuda(cudaError_t error) noexcept {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
}

/// Makes a device current for a scope. The calling thread's device is restored at its end.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int ordinal);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  int before_ = -1;  // -1: nothing to restore
};

}  // namespace flatshard::detail

#define FLATSHARD_CHECK_CUDA(call) \
  ::flatshard::detail::check_cuda((call), #call, __FILE__, __LINE__)
