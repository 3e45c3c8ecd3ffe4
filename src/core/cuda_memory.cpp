#include "cuda_memory.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/core/host_memory.hpp>

#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "cuda_check.hpp"

namespace flatshard::detail {

namespace {

constexpr Bytes page = 4096;                     // bytes
constexpr std::size_t huge_page = 2 << 20;       // bytes
constexpr Bytes address_space = Bytes{1} << 57;  // bytes: no processor has more

/// At least one page, so that allocate(0) has an address of its own.
std::size_t page_bytes(Bytes bytes) {
  return static_cast<std::size_t>(round_up(bytes > 0 ? bytes : 1, page));
}

/// Large ones ask the system for 2 MiB pages: fewer TLB misses where a step on the host streams
/// them, and less to lock. Only a request.
void* whole_pages(Bytes bytes) {
  const std::size_t size = page_bytes(bytes);
  if (bytes < HostMemory::huge_page_threshold) return std::aligned_alloc(page, size);
  void* pointer = nullptr;
  if (posix_memalign(&pointer, huge_page, size) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(pointer, size / huge_page * huge_page, MADV_HUGEPAGE);
#endif
  return pointer;
}

[[noreturn]] void throw_memory_error(const char* kind, int ordinal, Bytes bytes, Bytes in_use,
                                     cudaError_t error) {
  static_cast<void>(cudaGetLastError());
  throw MemoryError(
      fmt::format("{} of CUDA device {}: {} bytes could not be had ({} bytes in use): {}", kind,
                  ordinal, bytes, in_use, cudaGetErrorName(error)));
}

}  // namespace

void CountedMemory::count(Bytes bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  const Bytes now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Bytes most = high_water();
  while (most < now && !high_water_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void* CudaMemory::allocate(Bytes bytes) {
  const CudaDeviceGuard guard(ordinal_);
  void* pointer = nullptr;
  const bool possible = bytes >= 0 && bytes < address_space;
  const std::size_t size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  const cudaError_t error = possible ? cudaMalloc(&pointer, size) : cudaErrorMemoryAllocation;
  if (error != cudaSuccess) throw_memory_error("memory", ordinal_, bytes, allocated(), error);
  count(bytes);
  return pointer;
}

void CudaMemory::deallocate(void* pointer, Bytes bytes) noexcept {
  if (pointer == nullptr) return;
  ignore_cuda(cudaFree(pointer));  // finds the device by the address
  uncount(bytes);
}

PinnedMemory::~PinnedMemory() {
  for (const auto& [bytes, pointer] : given_back_) {
    ignore_cuda(cudaHostUnregister(pointer));
    std::free(pointer);
  }
}

void* PinnedMemory::allocate(Bytes bytes) {
  void* pointer = bytes >= 0 && bytes < address_space ? kept(page_bytes(bytes)) : nullptr;
  if (pointer == nullptr) pointer = locked(bytes);
  count(bytes);
  return pointer;
}

void* PinnedMemory::kept(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = given_back_.find(bytes);
  if (found == given_back_.end()) return nullptr;
  void* pointer = found->second;
  given_back_.erase(found);
  return pointer;
}

void* PinnedMemory::locked(Bytes bytes) const {
  const CudaDeviceGuard guard(ordinal_);
  const bool possible = bytes >= 0 && bytes < address_space;
  void* pointer = possible ? whole_pages(bytes) : nullptr;
  cudaError_t error = cudaErrorMemoryAllocation;
  if (pointer != nullptr)
    error = cudaHostRegister(pointer, page_bytes(bytes), cudaHostRegisterPortable);
  if (error == cudaSuccess) return pointer;
  std::free(pointer);
  throw_memory_error("pinned memory", ordinal_, bytes, allocated(), error);
}

void PinnedMemory::deallocate(void* pointer, Bytes bytes) noexcept {
  if (pointer == nullptr) return;
  uncount(bytes);
  const std::lock_guard lock(mutex_);
  given_back_.emplace(page_bytes(bytes), pointer);
}

}  // namespace flatshard::detail
