#include <flatshard/core/error.hpp>
#include <flatshard/io/io_error.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <string>
#include <system_error>
#include <utility>

#include "transfer_queues.hpp"

namespace flatshard {
namespace {

constexpr int most_depth = 4096;

std::string refusal_of(const detail::UringAttempt& attempt) {
  return std::string(attempt.call) + ": " + std::generic_category().message(attempt.code);
}

}  // namespace

const char* to_string(IoBackend backend) {
  return backend == IoBackend::Uring ? "io_uring" : "threads";
}

MadeQueue make_transfer_queue(std::optional<IoBackend> backend, int depth,
                              FileOperations& operations) {
  FLATSHARD_EXPECTS(depth >= 1 && depth <= most_depth,
                    "make_transfer_queue: depth " + std::to_string(depth) + " is not in 1 to " +
                        std::to_string(most_depth));
  if (backend == IoBackend::Threads) return {detail::make_thread_queue(depth, operations), {}};
  detail::UringAttempt attempt = detail::try_uring_queue(depth);
  if (attempt.queue != nullptr) return {std::move(attempt.queue), {}};
  if (backend) throw IoError(attempt.call, "io_uring", -1, attempt.code);
  return {detail::make_thread_queue(depth, operations), refusal_of(attempt)};
}

}  // namespace flatshard
