// Reads ranges of files in order, the next ones while one is used.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace flatshard {

/// Bytes [offset, offset + bytes) of an open file.
struct FileRange {
  const File* file = nullptr;  // must outlive its use
  Bytes offset = 0;            // in the file
  Bytes bytes = 0;             // may be 0
};

/// How ReadAhead reads.
struct ReadAheadOptions {
  int depth = 3;            // ranges in flight beside the one in use; at least 1
  bool page_cache = false;  // false: past the system's page cache where the file system lets us
                            // (O_DIRECT); true: through it, for bytes that are or should be there
  FileOperations* operations = nullptr;  // none: the operating system's, by io_uring where it works
};

/// Whole blocks of 4096 bytes are read into memory of its own: depth + 1 times the longest range,
/// each rounded out to blocks. Belongs to one thread; the destructor waits for what is in flight.
class ReadAhead {
 public:
  static constexpr Bytes block = 4096;  // bytes

  /// Begins to read. Throws IoError, MemoryError; UsageError for ranges beyond 2^30 bytes.
  ReadAhead(std::vector<FileRange> ranges, MemoryResource& memory,
            const ReadAheadOptions& options = {});
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The bytes of the next range, in the order given; valid until the next call. Blocks until they
  /// are there. Throws IoError with path and offset (code() == 0: the file ends too early), after
  /// which the ranges behind it can still be had. There must be one left.
  std::span<const std::byte> next();

 private:
  /// Where a range lands. Ranges take the slots by turns.
  struct Slot {
    std::byte* memory = nullptr;
    int descriptor = -1;
    Bytes begin = 0, length = 0;  // of the blocks in the file
    Bytes needed = 0;             // of `length`
    Bytes done = 0, reached = 0;  // in whole blocks; by the byte
    int interruptions = 0;        // in a row, without progress
    bool pending = false;
    int code = 0;  // an errno
  };
  Slot& slot_of(std::size_t range) { return slots_[range % slots_.size()]; }
  int descriptor_of(const File& file);
  void begin(std::size_t range);
  void submit(Slot& slot);
  void take_results();
  void take(Slot& slot, std::int64_t moved);
  [[noreturn]] void fail(const Slot& slot, const FileRange& range) const;

  std::vector<FileRange> ranges_;
  bool page_cache_;
  std::map<const File*, std::optional<File>> past_cache_;  // none: the file's own descriptor serves
  Buffer memory_;
  std::vector<Slot> slots_;
  std::unique_ptr<TransferQueue> queue_;
  int in_flight_ = 0;
  std::size_t next_ = 0, begun_ = 0;  // of ranges_
};

}  // namespace flatshard
