#include <fmt/format.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <string>
#include <thread>

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

/// Each device's share of the cores, but for the thread that issues the work.
CudaOptions completed(CudaOptions options) {
  FLATSHARD_EXPECTS(options.host_threads >= 0,
                    fmt::format("host_threads is {}, not a count", options.host_threads));
  if (options.host_threads > 0) return options;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  options.host_threads = std::max(1, cores / std::max(1, cuda_device_count()) - 1);
  return options;
}

}  // namespace

int cuda_device_count() noexcept {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  detail::ignore_cuda(error);
  return error == cudaSuccess ? count : 0;
}

CudaDevice::Parts::Parts(int number, const CudaOptions& chosen)
    : ordinal(checked_ordinal(number)),
      options(completed(chosen)),
      name(name_of_device(number)),
      priority(highest_priority(number)),
      memory(number),
      pinned(number),
      counters(number) {}

CudaDevice::~CudaDevice() = default;

std::string_view CudaDevice::name() const { return parts_->name; }
MemoryResource& CudaDevice::memory() { return parts_->memory; }
MemoryResource& CudaDevice::pinned() { return parts_->pinned; }
const KernelTable& CudaDevice::kernels() const { return *parts_->kernels; }
int CudaDevice::ordinal() const { return parts_->ordinal; }
const CudaOptions& CudaDevice::options() const { return parts_->options; }

void CudaDevice::copy(const void* source, void* destination, Bytes bytes, StreamRef stream) {
  if (bytes == 0 || source == destination) return;
  const auto native = static_cast<cudaStream_t>(cuda_stream(stream));
  // The driver may take what is pageable at once, though a lane has yet to write it; and until the
  // stream comes there it blocks, without a look at collectives that may never end.
  if (detail::blocks_host(source, destination)) stream->synchronize();
  FLATSHARD_CHECK_CUDA(cudaMemcpyAsync(destination, source, static_cast<std::size_t>(bytes),
                                       cudaMemcpyDefault, native));
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  return std::make_unique<detail::CudaStream>(parts_->ordinal, parts_->priority, parts_->monitors);
}

std::unique_ptr<Stream> CudaDevice::make_compute_stream() {
  return std::make_unique<detail::CudaStream>(parts_->ordinal, 0, parts_->monitors);
}

std::unique_ptr<Stream> CudaDevice::make_host_side_stream() {
  return std::make_unique<detail::DeviceLane>(std::make_shared<detail::CudaLink>(
      parts_->ordinal, parts_->priority, parts_->counters, parts_->monitors));
}

const KernelTable& CudaDevice::host_kernels() const {
  if (parts_->host_kernels == nullptr) parts_->host_kernels = parts_->make_host_kernels();
  return *parts_->host_kernels;
}

std::unique_ptr<Event> CudaDevice::make_event() {
  return std::make_unique<detail::CudaEvent>(parts_->ordinal);
}

}  // namespace flatshard
