// Host memory that is counted: the bytes asked for, now, at most, and in how many calls.
#pragma once

#include <flatshard/core/buffer.hpp>

#include <atomic>

namespace flatshard {

/// Host memory. Counts exactly the bytes asked for (rounding to pages is not counted).
/// Thread-safety: all members may be called from several threads.
class HostMemory final : public MemoryResource {
 public:
  /// With `huge_pages`, blocks of at least huge_page_threshold bytes ask the system for 2 MiB
  /// pages: fewer TLB misses in the passes that stream whole buffers. Only a request: no error when
  /// the system has none.
  explicit HostMemory(bool huge_pages = true) : huge_pages_(huge_pages) {}

  static constexpr Bytes alignment = 4096;               // bytes
  static constexpr Bytes huge_page_threshold = 4 << 20;  // bytes

  void* allocate(Bytes bytes) override;
  void deallocate(void* pointer, Bytes bytes) noexcept override;
  Bytes allocated() const override { return allocated_.load(std::memory_order_relaxed); }
  Bytes high_water() const override { return high_water_.load(std::memory_order_relaxed); }
  std::int64_t allocations() const override { return allocations_.load(std::memory_order_relaxed); }

 private:
  void count(Bytes bytes);

  bool huge_pages_;
  std::atomic<Bytes> allocated_{0};
  std::atomic<Bytes> high_water_{0};
  std::atomic<std::int64_t> allocations_{0};
};

}  // namespace flatshard
