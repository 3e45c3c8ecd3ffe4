#include <flatshard/core/error.hpp>
#include <flatshard/core/host_memory.hpp>

#include <cstdlib>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace flatshard {
namespace {

constexpr Bytes huge_page = 2 << 20;             // bytes
constexpr Bytes address_space = Bytes{1} << 57;  // bytes: no processor has more

void* aligned(Bytes bytes, Bytes alignment) {
  void* pointer = nullptr;
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  const int status = posix_memalign(&pointer, static_cast<std::size_t>(alignment), size);
  return status == 0 ? pointer : nullptr;
}

void ask_for_huge_pages([[maybe_unused]] void* pointer, [[maybe_unused]] Bytes bytes) {
#if defined(MADV_HUGEPAGE)
  madvise(pointer, static_cast<std::size_t>(bytes / huge_page * huge_page), MADV_HUGEPAGE);
#endif
}

}  // namespace

void* HostMemory::allocate(Bytes bytes) {
  const bool huge = huge_pages_ && bytes >= huge_page_threshold;
  const bool possible = bytes >= 0 && bytes < address_space;
  void* pointer = possible ? aligned(bytes, huge ? huge_page : alignment) : nullptr;
  if (pointer == nullptr)
    throw MemoryError("host memory: " + std::to_string(bytes) + " bytes could not be had (" +
                      std::to_string(allocated()) + " bytes in use)");
  if (huge) ask_for_huge_pages(pointer, bytes);
  count(bytes);
  return pointer;
}

void HostMemory::deallocate(void* pointer, Bytes bytes) noexcept {
  if (pointer == nullptr) return;
  std::free(pointer);
  allocated_.fetch_sub(bytes, std::memory_order_relaxed);
}

void HostMemory::count(Bytes bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  const Bytes now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Bytes most = high_water();
  while (most < now && !high_water_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace flatshard
