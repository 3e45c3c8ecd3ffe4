// Writes ranges of files in order, out of memory of its own, while the caller makes the next ones.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace flatshard {

/// How WriteBehind writes.
struct WriteBehindOptions {
  int depth = 3;                       // blocks in flight beside the one being filled; at least 1
  Bytes block_bytes = Bytes{1} << 20;  // of each, rounded up to pages
  bool page_cache = false;  // false: past the system's page cache where the file system lets us
                            // (O_DIRECT); true: through it
  FileOperations* operations = nullptr;  // none: the operating system's, by io_uring where it works
};

/// Whole pages go past the page cache, in runs as long as consecutive writes make them; what is
/// left at the ends of a run, and short runs, go through it. So ranges of several writers may share
/// a page, each with a WriteBehind of its own, as long as no byte is shared. What a file system
/// does not take past the cache is written through it. Belongs to one thread; files should be long
/// enough from the beginning (File::allocate).
class WriteBehind {
 public:
  static constexpr Bytes short_run = 64 << 10;  // bytes; block_bytes, if that is less

  /// Throws UsageError.
  explicit WriteBehind(MemoryResource& memory, const WriteBehindOptions& options = {});
  /// Waits for what is in flight; without an earlier wait() the rest is lost.
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  /// Takes the memory, depth + 1 blocks, that the first write past the cache would take.
  void reserve();
  /// bytes.size() bytes to `offset` on; the memory is the caller's again. A file must live until it
  /// has been waited for; one at a time is in hand, so that turning to another waits. Throws
  /// IoError with path and offset, perhaps of an earlier write; MemoryError. After an error only
  /// the destructor may be called.
  void write(File& file, Bytes offset, std::span<const std::byte> bytes);
  /// Blocks until the system has taken all bytes, and forgets the file. (To have them on the
  /// device: File::synchronize.) Throws as write().
  void wait();

 private:
  /// Bytes [first, last) of the file, of which [body_begin, body_end) are whole pages. The memory's
  /// first byte is for byte `begin`, where a page begins.
  struct Slot {
    std::byte* memory = nullptr;
    Bytes begin = 0, first = 0, last = 0;
    Bytes body_begin = 0, body_end = 0;
    std::byte* at(Bytes byte) const { return memory + (byte - begin); }
  };
  void turn_to(File& file);
  void start(Bytes offset);
  void append(std::span<const std::byte> bytes);
  void send();
  void submit(const Slot& slot);
  void take_result();
  void take(const Slot& slot, std::int64_t moved);
  void through_cache(const Slot& slot, Bytes from, Bytes to);

  MemoryResource& resource_;
  WriteBehindOptions options_;
  Bytes page_, least_body_;
  File* file_ = nullptr;
  std::optional<File> past_cache_;  // the same file
  bool refused_ = false;            // that was opened, but cannot be written to
  Buffer memory_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;  // of slots_
  Slot* filling_ = nullptr;
  int in_flight_ = 0;
  std::unique_ptr<TransferQueue> queue_;  // last: it ends before what it writes from and to
};

}  // namespace flatshard
