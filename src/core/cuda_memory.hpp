// Memory of a CUDA device and page-locked memory of its host, both counted.
#pragma once

#include <flatshard/core/buffer.hpp>

#include <atomic>
#include <map>
#include <mutex>

namespace flatshard::detail {

/// Counts exactly the bytes asked for. Thread-safe.
class CountedMemory : public MemoryResource {
 public:
  Bytes allocated() const override { return allocated_.load(std::memory_order_relaxed); }
  Bytes high_water() const override { return high_water_.load(std::memory_order_relaxed); }
  std::int64_t allocations() const override { return allocations_.load(std::memory_order_relaxed); }

 protected:
  void count(Bytes bytes);
  void uncount(Bytes bytes) noexcept { allocated_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<Bytes> allocated_{0};
  std::atomic<Bytes> high_water_{0};
  std::atomic<std::int64_t> allocations_{0};
};

/// cudaMalloc and cudaFree on one device.
class CudaMemory final : public CountedMemory {
 public:
  explicit CudaMemory(int ordinal) : ordinal_(ordinal) {}
  void* allocate(Bytes bytes) override;
  void deallocate(void* pointer, Bytes bytes) noexcept override;

 private:
  int ordinal_;
};

/// Whole pages, locked for every device of the process. Unlocking waits for all of those devices,
/// also for one on which another rank's collective waits for this rank; so blocks that are given
/// back are kept, and given out again for as many pages.
class PinnedMemory final : public CountedMemory {
 public:
  explicit PinnedMemory(int ordinal) : ordinal_(ordinal) {}
  ~PinnedMemory() override;
  void* allocate(Bytes bytes) override;
  void deallocate(void* pointer, Bytes bytes) noexcept override;

 private:
  void* kept(std::size_t bytes);
  void* locked(Bytes bytes) const;

  int ordinal_;
  std::mutex mutex_;                              // guards the rest
  std::multimap<std::size_t, void*> given_back_;  // by bytes, whole pages
};

}  // namespace flatshard::detail
