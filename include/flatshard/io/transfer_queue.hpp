// Asynchronous reads and writes of open files: one interface, by io_uring or by a pool of threads.
#pragma once

#include <flatshard/core/types.hpp>
#include <flatshard/io/file_operations.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace flatshard {

/// Who carries transfers out.
enum class IoBackend : std::uint8_t {
  Uring,   // the kernel, asked through io_uring
  Threads  // threads of this process, by pread and pwrite
};

/// "io_uring" or "threads".
const char* to_string(IoBackend backend);

/// One read or write. Its memory belongs to the queue until its result has come.
struct Transfer {
  /// Which way bytes go.
  enum class Kind : std::uint8_t { Read, Write };
  Kind kind = Kind::Read;     // which way
  int file = -1;              // descriptor
  std::byte* data = nullptr;  // (bytes)
  Bytes bytes = 0;            // at most 2^30
  Bytes offset = 0;           // in the file, in bytes
  std::uint64_t id = 0;       // the caller's; comes back with the result
};

/// What became of a transfer: as pread and pwrite, it may move fewer bytes than asked for.
struct TransferResult {
  std::uint64_t id = 0;    // of the transfer
  std::int64_t moved = 0;  // bytes, or a negative errno (-EINTR and -EAGAIN: nothing is wrong)
};

/// Transfers in flight. Every transfer that was submitted gives exactly one result, whatever fails.
/// Results come in any order. Belongs to one thread.
class TransferQueue {
 public:
  TransferQueue() = default;
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;
  /// Waits for what is in flight; the results are lost.
  virtual ~TransferQueue() = default;

  virtual IoBackend backend() const = 0;  // who carries transfers out
  /// The most transfers that may be without result at once.
  virtual int depth() const = 0;
  /// Begins transfers, in order; together with those in flight at most depth(). What cannot be
  /// begun has the errno as its result.
  virtual void submit(std::span<const Transfer> transfers) noexcept = 0;
  /// Blocks until there is a result; returns how many were put into `results`. Something must be
  /// in flight, and `results` not empty.
  virtual std::size_t wait(std::span<TransferResult> results) noexcept = 0;
};

/// A queue, and how it came to be.
struct MadeQueue {
  std::unique_ptr<TransferQueue> queue;  // never null
  std::string fallback;  // why not io_uring, where nothing was asked for; else empty
};

/// With `backend` empty: io_uring where it works, else threads. Throws IoError where the backend
/// that was asked for cannot be had (code() ENOSYS: this build has no io_uring), UsageError for a
/// depth outside 1 to 4096. `operations` serve the threads only; they must outlive the queue.
MadeQueue make_transfer_queue(std::optional<IoBackend> backend, int depth,
                              FileOperations& operations = posix_file_operations());

}  // namespace flatshard
