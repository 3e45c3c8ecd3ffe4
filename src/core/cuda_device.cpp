#include <fmt/format.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>

#include <string>

#include "cuda_device_parts.hpp"
#include "cuda_stream.hpp"

namespace flatshard {

namespace {

int checked_ordinal(int ordinal) {
  const int count = cuda_device_count();
  FLATSHARD_EXPECTS(
      ordinal >= 0 && ordinal < count,
      fmt::format("CUDA device {} cannot be used: this process has {}", ordinal, count));
  return ordinal;
}

std::string name_of_device(int ordinal) {
  cudaDeviceProp properties{};
  FLATSHARD_CHECK_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  return fmt::format("cuda:{} {}", ordinal, static_cast<const char*>(properties.name));
}

int highest_priority(int ordinal) {
  const detail::CudaDeviceGuard guard(ordinal);
  int least = 0, greatest = 0;
  FLATSHARD_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  return greatest;
}

}  // namespace

int cuda_device_count() noexcept {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  detail::ignore_cuda(error);
  return error == cudaSuccess ? count : 0;
}

CudaDevice::Parts::Parts(int number)
    : ordinal(checked_ordinal(number)),
      name(name_of_device(number)),
      priority(highest_priority(number)),
      memory(number),
      pinned(number) {}

CudaDevice::~CudaDevice() = default;

std::string_view CudaDevice::name() const { return parts_->name; }
MemoryResource& CudaDevice::memory() { return parts_->memory; }
MemoryResource& CudaDevice::pinned() { return parts_->pinned; }
const KernelTable& CudaDevice::kernels() const { return *parts_->kernels; }
int CudaDevice::ordinal() const { return parts_->ordinal; }

void CudaDevice::copy(const void* source, void* destination, Bytes bytes, StreamRef stream) {
  if (bytes == 0 || source == destination) return;
  const auto native = static_cast<cudaStream_t>(cuda_stream(stream));
  FLATSHARD_CHECK_CUDA(cudaMemcpyAsync(destination, source, static_cast<std::size_t>(bytes),
                                       cudaMemcpyDefault, native));
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  return std::make_unique<detail::CudaStream>(parts_->ordinal, parts_->priority);
}

std::unique_ptr<Stream> CudaDevice::make_compute_stream() {
  return std::make_unique<detail::CudaStream>(parts_->ordinal, 0);
}

std::unique_ptr<Event> CudaDevice::make_event() {
  return std::make_unique<detail::CudaEvent>(parts_->ordinal);
}

}  // namespace flatshard
