// The runtime's functions that copy or set memory, and the driver's that store and wait for
// numbers.
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "capture.hpp"
#include "memory.hpp"

using namespace emulated;

namespace {

bool is_pageable(const void* memory) {
  return block_around(memory).type == cudaMemoryTypeUnregistered;
}
bool is_on_device(const void* memory) { return block_around(memory).type == cudaMemoryTypeDevice; }

Work copy_work(void* to, const void* from, std::size_t bytes) {
  return Work([to, from, bytes] {
    if (is_on_device(to)) touch(to, bytes);
    if (is_on_device(from)) touch(from, bytes);
    std::memmove(to, from, bytes);
  });
}

/// What is pageable is read before the call returns, even if the stream has yet to come there.
void copy_from_pageable(CUstream_st& stream, void* to, const void* from, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  enqueue(stream, Work([to, taken = Array<std::byte>(begin, begin + bytes)] {
            touch(to, taken.size());
            std::memcpy(to, taken.data(), taken.size());
          }));
}

using Number = std::atomic_ref<std::uint64_t>;

Number number_at(CUdeviceptr address) {
  auto* const place = reinterpret_cast<std::uint64_t*>(address);
  touch(place, sizeof(std::uint64_t));
  return Number(*place);
}

CUresult write_value(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned) {
  CUstream_st& stream = stream_of(handle);
  if (capture_of(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enqueue(stream, Work([=] { number_at(address).store(value, std::memory_order_release); }));
  return CUDA_SUCCESS;
}

void wait_for_number(CUdeviceptr address, cuuint64_t value) {
  const Number number = number_at(address);
  while (number.load(std::memory_order_acquire) < value)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

CUresult wait_value(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  CUstream_st& stream = stream_of(handle);
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  if (capture_of(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enqueue(stream, Work([=] { wait_for_number(address, value); }));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t handle) {
  if (to == nullptr || from == nullptr) return result(cudaErrorInvalidValue);
  CUstream_st& stream = stream_of(handle);
  const bool captured = capture_of(stream) != nullptr;
  if (is_on_device(to) && is_pageable(from) && !captured) {
    copy_from_pageable(stream, to, from, bytes);
    return cudaSuccess;
  }
  enqueue(stream, copy_work(to, from, bytes));
  const bool to_device = is_on_device(to), from_device = is_on_device(from);
  if (!captured && ((!to_device && !from_device) || is_pageable(to)))
    stream.progress->wait(stream.progress->issued());
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (error != cudaSuccess) return error;
  CUstream_st& stream = stream_of(nullptr);
  stream.progress->wait(stream.progress->issued());
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream_of(stream), Work([to, value, bytes] {
            touch(to, bytes);
            std::memset(to, value, bytes);
          }));
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const std::string_view wanted = name;
  *function = nullptr;
  if (wanted == "cuStreamWriteValue64") *function = reinterpret_cast<void*>(write_value);
  if (wanted == "cuStreamWaitValue64") *function = reinterpret_cast<void*>(wait_value);
  if (found != nullptr)
    *found =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
