// Slots on their way through a few buffers: while one is worked on, the next is read and the last
// one written.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/io/slot_store.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace flatshard {

/// Buffers for slots of a store. A slot goes through prefetch (its read begins), acquire (it is
/// there) and put_back or drop (its buffer becomes free, after its write). Belongs to one thread;
/// nothing is allocated after construction.
class SlotPipeline {
 public:
  /// `buffers` >= 1 of the largest slot's size from `memory`; with 3, reading, work and writing
  /// overlap. `store` and `memory` must outlive the pipeline. Throws UsageError and MemoryError.
  SlotPipeline(SlotStore& store, MemoryResource& memory, int buffers = 3);
  /// Waits for what is in flight; its errors are lost: call wait_all() where they matter.
  ~SlotPipeline();
  SlotPipeline(const SlotPipeline&) = delete;
  SlotPipeline& operator=(const SlotPipeline&) = delete;

  /// What a pipeline takes from its memory, in bytes: buffers * the largest slot, rounded up to
  /// SlotStore::alignment.
  static Bytes buffer_bytes(std::span<const Bytes> slot_bytes, int buffers);

  /// Begins to read a slot written under `tag` when a buffer is free, and says whether; true also
  /// when the slot is here already. Does not wait. Throws the error of a write whose buffer it
  /// takes.
  bool prefetch(std::size_t slot, std::int64_t tag);
  /// Blocks until the slot is here: bytes(slot) bytes, aligned, the caller's until put_back or
  /// drop. Throws the error of the read, or of a write whose buffer was needed; UsageError when
  /// other slots hold all buffers. After an error of the slot its buffer is free again.
  std::span<std::byte> wait_for(std::size_t slot, std::int64_t tag);
  /// A buffer for a slot whose old bytes do not matter. Blocks and throws as wait_for.
  std::span<std::byte> wait_for_empty(std::size_t slot);
  /// Begins to write the slot's bytes under `tag`. The slot must be here.
  void put_back(std::size_t slot, std::int64_t tag);
  /// Gives the buffer back; nothing is written. Waits for the slot's read.
  void wait_and_drop(std::size_t slot);
  /// Blocks until all writes are done; throws the first error. Slots that are here stay.
  void wait_all();

  /// For each of `slots` in turn: work(slot, bytes), written back under `new_tag` (empty: dropped),
  /// while the next ones are read, as far as buffers go, and the last one is written. Blocks until
  /// all writes are done. `slots` has no slot twice. An exception ends it, after what is in flight;
  /// all buffers are free then, slots whose work was done may have their new bytes, the others have
  /// their old ones.
  template <class Work>
  void wait_for_each(std::span<const std::size_t> slots, std::int64_t tag,
                     std::optional<std::int64_t> new_tag, Work work) {
    try {
      for (std::size_t at = 0; at < slots.size(); ++at) {
        const std::span<std::byte> data = wait_for(slots[at], tag);
        prefetch_some(slots.subspan(at + 1), tag);
        work(slots[at], data);
        if (new_tag)
          put_back(slots[at], *new_tag);
        else
          wait_and_drop(slots[at]);
      }
      wait_all();
    } catch (...) {
      abandon();
      throw;
    }
  }

 private:
  enum class State : std::uint8_t { Free, Reading, Here, Writing };
  struct Place {
    Buffer buffer;
    std::size_t slot = 0;
    State state = State::Free;
  };

  Place* find(std::size_t slot);
  Place* take(std::size_t slot);
  Place& wait_for_place(std::size_t slot);
  Place& here(const char* call, std::size_t slot);
  void settle(Place& place);
  /// The first of `slots`, as far as buffers go.
  void prefetch_some(std::span<const std::size_t> slots, std::int64_t tag);
  /// All buffers are free afterwards; waits, and loses errors.
  void abandon() noexcept;
  std::span<std::byte> bytes_of(const Place& place) const;

  SlotStore& store_;
  std::vector<Place> places_;
  std::size_t next_ = 0;  // where the search for a free buffer begins: the longest written one
};

}  // namespace flatshard
