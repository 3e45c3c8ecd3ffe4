#include "cuda_values.hpp"

#include <cuda.h>
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <new>

namespace flatshard::detail {

namespace {

constexpr std::size_t page_size = 4096;  // bytes
constexpr std::size_t spacing = 64;      // bytes: a cache line each

std::atomic<int> counters_in_use{0};  // of all devices

using ValueCall = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

/// A function of the driver, found by name: the library is not linked with it.
ValueCall driver_call(const char* name) {
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  cudaDriverEntryPointQueryResult result{};
  FLATSHARD_CHECK_CUDA(
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
#else
  FLATSHARD_CHECK_CUDA(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault));
#endif
  if (found == nullptr)
    throw DeviceError(fmt::format("the CUDA driver has no {}, which offload needs: use a driver of "
                                  "CUDA 12 or later, or offload::None",
                                  name),
                      {__FILE__, __LINE__});
  return reinterpret_cast<ValueCall>(found);
}

void call_driver(ValueCall call, const char* name, cudaStream_t stream, int ordinal,
                 PinnedCounter counter, std::uint64_t value, unsigned int flags) {
  const CudaDeviceGuard guard(ordinal);
  CUresult result = call(stream, counter.address, value, flags);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // a thread that has not used the device so far
    FLATSHARD_CHECK_CUDA(cudaSetDevice(ordinal));
    result = call(stream, counter.address, value, flags);
  }
  if (result != CUDA_SUCCESS)
    throw DeviceError(
        fmt::format("{} failed on device {}: CUresult {}", name, ordinal, static_cast<int>(result)),
        {__FILE__, __LINE__});
}

}  // namespace

PinnedCounters::~PinnedCounters() {
  for (void* pinned : pages_) ignore_cuda(cudaFreeHost(pinned));
}

PinnedCounter PinnedCounters::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) add_page();
  const PinnedCounter counter = free_.back();
  free_.pop_back();
  ++counters_in_use;
  return counter;
}

void PinnedCounters::give_back(PinnedCounter counter) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(counter);  // there is room: it was here
  --counters_in_use;
}

void PinnedCounters::add_page() {
  const CudaDeviceGuard guard(ordinal_);
  void* pinned = nullptr;
  void* on_device = nullptr;
  pages_.reserve(pages_.size() + 1);
  free_.reserve((pages_.size() + 1) * (page_size / spacing));
  if (cudaHostAlloc(&pinned, page_size, cudaHostAllocMapped | cudaHostAllocPortable) !=
      cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw MemoryError(fmt::format("pinned memory of CUDA device {}: {} bytes could not be had",
                                  ordinal_, page_size));
  }
  pages_.push_back(pinned);
  FLATSHARD_CHECK_CUDA(cudaHostGetDevicePointer(&on_device, pinned, 0));
  for (std::size_t at = 0; at < page_size; at += spacing)
    free_.push_back({::new (static_cast<std::byte*>(pinned) + at) std::atomic<std::uint64_t>(0),
                     reinterpret_cast<std::uint64_t>(on_device) + at});
}

namespace {

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes attributes{};
  FLATSHARD_CHECK_CUDA(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type;
}

}  // namespace

bool is_offloaded_pageable(const void* memory) {
  return counters_in_use.load() > 0 && type_of(memory) == cudaMemoryTypeUnregistered;
}

bool blocks_host(const void* source, const void* destination) {
  if (counters_in_use.load() == 0) return false;
  const cudaMemoryType from = type_of(source), to = type_of(destination);
  return from == cudaMemoryTypeUnregistered || to == cudaMemoryTypeUnregistered ||
         (from == cudaMemoryTypeHost && to == cudaMemoryTypeHost);
}

void wait_for_value(cudaStream_t stream, int ordinal, PinnedCounter counter, std::uint64_t target) {
  static const ValueCall call = driver_call("cuStreamWaitValue64");
  call_driver(call, "cuStreamWaitValue64", stream, ordinal, counter, target,
              CU_STREAM_WAIT_VALUE_GEQ);
}

void store_value(cudaStream_t stream, int ordinal, PinnedCounter counter, std::uint64_t value) {
  static const ValueCall call = driver_call("cuStreamWriteValue64");
  call_driver(call, "cuStreamWriteValue64", stream, ordinal, counter, value,
              CU_STREAM_WRITE_VALUE_DEFAULT);
}

}  // namespace flatshard::detail
