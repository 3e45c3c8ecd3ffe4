// io_uring in a build without liburing.
#include <cerrno>

#include "transfer_queues.hpp"

namespace flatshard::detail {

UringAttempt try_uring_queue(int) {
  return {nullptr, ENOSYS, "io_uring (flatshard was built without liburing)"};
}

}  // namespace flatshard::detail
