// The two kinds of transfer queues.
#pragma once

#include <flatshard/io/transfer_queue.hpp>

#include <memory>

namespace flatshard::detail {

/// `depth` threads that call operations.pread and pwrite. Throws IoError when they cannot start.
std::unique_ptr<TransferQueue> make_thread_queue(int depth, FileOperations& operations);

/// What asking for io_uring gave.
struct UringAttempt {
  std::unique_ptr<TransferQueue> queue;  // null: refused
  int code = 0;                          // then: the errno, ENOSYS also in a build without it
  const char* call = "";                 // and the call that was refused
};

/// By io_uring, where this build and the kernel have it.
UringAttempt try_uring_queue(int depth);

}  // namespace flatshard::detail
