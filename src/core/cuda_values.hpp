// Numbers in pinned memory that host threads and CUDA streams store and wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_check.hpp"

namespace flatshard::detail {

/// One number; it only grows, also from one owner to the next: a stream may still have to come by a
/// wait for a number that was stored long ago.
struct PinnedCounter {
  std::atomic<std::uint64_t>* value = nullptr;  // the host's address
  std::uint64_t address = 0;                    // the device's
};

/// Those of one device. Thread-safe.
class PinnedCounters {
 public:
  explicit PinnedCounters(int ordinal) : ordinal_(ordinal) {}
  ~PinnedCounters();
  PinnedCounters(const PinnedCounters&) = delete;
  PinnedCounters& operator=(const PinnedCounters&) = delete;

  /// Throws MemoryError.
  PinnedCounter take();
  void give_back(PinnedCounter counter) noexcept;

 private:
  void add_page();

  int ordinal_;
  std::mutex mutex_;  // guards the rest
  std::vector<void*> pages_;
  std::vector<PinnedCounter> free_;
};

/// Host memory that no device sees: neither pinned nor managed. Asks the driver, but only while the
/// process has counters in use: else nothing of this library's is there.
bool is_offloaded_pageable(const void* memory);
/// Whether the driver blocks the host in a copy until its stream comes there: such memory is part
/// of it, or both sides are host memory. Asks as that does.
bool blocks_host(const void* source, const void* destination);

/// Work that `stream`, of device `ordinal`, is given later starts once the number is at least
/// `target`.
void wait_for_value(cudaStream_t stream, int ordinal, PinnedCounter counter, std::uint64_t target);
/// The number is `value` once `stream` has come here; what it wrote before is there then.
void store_value(cudaStream_t stream, int ordinal, PinnedCounter counter, std::uint64_t value);

}  // namespace flatshard::detail
