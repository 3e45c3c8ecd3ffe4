// Fixed slots of bytes in one private file, written and read while the caller goes on.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/core/types.hpp>
#include <flatshard/io/file_operations.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace flatshard {

/// Where slots lie and how they are transferred.
struct SlotStoreOptions {
  std::string folder = {};                // on the disk to use; made when there is none
  std::optional<IoBackend> backend = {};  // empty: io_uring where it works, else threads
  int queue_depth = 16;                   // transfers in flight; of threads: their number
  Bytes block_bytes = 1 << 20;            // per transfer and checksum; a multiple of 4096
  int bounce_buffers = 4;                 // blocks of memory for what is not aligned
  bool direct = true;                     // past the page cache, where the file system can
  FileOperations* operations = nullptr;   // must outlive the store; null: the system's
  /// For tests: what it makes of the queue is used in its place.
  std::function<std::unique_ptr<TransferQueue>(std::unique_ptr<TransferQueue>)> decorate = {};
};

/// A file of this process alone: in a folder of its own (flatshard-slots-<16 hex digits>, mode
/// 0700), without a name from the moment it is open, so that nothing but an empty folder outlives a
/// process that is killed; the next store in the same place removes such folders, never those of a
/// living process. Space for all slots is reserved at construction.
///
/// Each block of a slot is remembered with a CRC32C and the tag of its write (a step, say), and is
/// compared when it is read. A short transfer is continued; every other failure is an error of its
/// slot. A slot whose write failed cannot be read until it is wholly written.
///
/// A slot has one request at a time: begin_read or begin_write begins it, wait ends it. Requests
/// are served in the order in which they were begun by a thread of the store. Calls belong to one
/// thread at a time. Nothing is allocated after construction, except by failures.
class SlotStore {
 public:
  static constexpr Bytes alignment = 4096;  // of offsets, lengths and memory past the page cache

  /// Slot s has slot_bytes[s] bytes. Bounce buffers come from `memory`, which must outlive the
  /// store. Throws UsageError for options without meaning, MemoryError, and IoError: ENOSPC where
  /// the disk has no room for all slots, the errno of a backend that was asked for and refused.
  SlotStore(std::span<const Bytes> slot_bytes, MemoryResource& memory, SlotStoreOptions options);
  /// Waits for transfers in flight; requests that nobody waited for are abandoned.
  ~SlotStore();
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  /// What a store with these options takes from `memory`, in bytes.
  static Bytes bounce_bytes(const SlotStoreOptions& options);
  /// Size of the file, in bytes: each slot rounded up to the alignment.
  static Bytes file_bytes(std::span<const Bytes> slot_bytes);

  std::size_t slots() const;            // their number
  Bytes bytes(std::size_t slot) const;  // of a slot, as given
  IoBackend backend() const;            // who carries transfers out
  /// Why not io_uring, where the choice was free; else empty.
  const std::string& fallback() const;
  bool direct() const;          // past the page cache
  bool space_reserved() const;  // false: the file system cannot; there was room at construction
  /// All of the above in a line, for logs: "io_uring, direct, depth 16, blocks of 1048576 bytes".
  std::string description() const;

  /// Begins to write `data`, bytes(slot) bytes that must stay as they are until wait(slot); memory
  /// at multiples of the alignment is written from where it lies. `tag` >= 0. Throws UsageError,
  /// also while the slot's last request goes on; and the error of that request when nobody has
  /// seen it.
  void begin_write(std::size_t slot, std::int64_t tag, std::span<const std::byte> data);
  /// Begins to read what was written under `tag` into `data`, bytes(slot) bytes that must not be
  /// touched until wait(slot). Throws as begin_write.
  void begin_read(std::size_t slot, std::int64_t tag, std::span<std::byte> data);
  /// True when wait(slot) would not block.
  bool finished(std::size_t slot) const;
  /// Blocks until the slot's request is done; returns at once without one. Throws its error, once:
  /// IoError with path, offset and errno, or IntegrityError for bytes that are not those written
  /// under the tag.
  void wait(std::size_t slot);
  /// Blocks until all requests are done; throws the error of the first slot that has one and
  /// forgets those of the others.
  void wait_all();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flatshard
