#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "transfer_queues.hpp"

namespace flatshard::detail {
namespace {

// Short of memory, or interrupted: 10000 pauses are at least a second.
constexpr int most_pauses = 10000;
void pause_for_kernel() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

bool passes(int code) { return code == -EINTR || code == -EAGAIN || code == -EBUSY; }

class UringQueue final : public TransferQueue {
 public:
  /// Takes over an initialised ring of `depth` entries.
  UringQueue(const io_uring& ring, int depth) : ring_(ring), depth_(depth) {
    unsent_.reserve(static_cast<std::size_t>(depth));
    refused_.reserve(static_cast<std::size_t>(depth));
  }
  ~UringQueue() override {
    refused_.clear();
    TransferResult lost;
    while (in_kernel_ > 0) wait({&lost, 1});
    io_uring_queue_exit(&ring_);
  }

  IoBackend backend() const override { return IoBackend::Uring; }
  int depth() const override { return depth_; }

  void submit(std::span<const Transfer> transfers) noexcept override {
    for (const Transfer& transfer : transfers) {
      if (broken_ != 0)
        refused_.push_back({transfer.id, -broken_});
      else
        prepare(transfer);
    }
    send();
  }

  // A wait that the kernel refuses is tried again for ever: memory in flight is not ours to give
  // back. Sleeping lets completions arrive.
  std::size_t wait(std::span<TransferResult> results) noexcept override {
    if (!refused_.empty()) return take_refused(results);
    io_uring_cqe* entry = nullptr;
    while (io_uring_wait_cqe(&ring_, &entry) != 0) pause_for_kernel();
    std::size_t count = 0;
    while (count < results.size() && io_uring_peek_cqe(&ring_, &entry) == 0) {
      results[count++] = {entry->user_data, entry->res};
      io_uring_cqe_seen(&ring_, entry);
      --in_kernel_;
    }
    return count;
  }

 private:
  // The ring has an entry for each of `depth` transfers, and all earlier ones were sent.
  void prepare(const Transfer& transfer) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<std::uint64_t>(transfer.offset);
    if (transfer.kind == Transfer::Kind::Read)
      io_uring_prep_read(entry, transfer.file, transfer.data, bytes, offset);
    else
      io_uring_prep_write(entry, transfer.file, transfer.data, bytes, offset);
    entry->user_data = transfer.id;
    unsent_.push_back(transfer.id);
  }

  /// The kernel takes entries in order, perhaps only some of them at a time.
  void send() noexcept {
    std::size_t sent = 0;
    for (int pauses = 0; sent < unsent_.size();) {
      const int taken = io_uring_submit(&ring_);
      if (taken > 0) {
        sent += static_cast<std::size_t>(taken);
        in_kernel_ += taken;
        pauses = 0;
      } else if ((taken == 0 || passes(taken)) && ++pauses < most_pauses) {
        pause_for_kernel();
      } else {
        give_up(sent, taken == 0 ? EIO : -taken);
        break;
      }
    }
    unsent_.clear();
  }

  /// Nothing is sent ever again: the refused entries are still in the ring.
  void give_up(std::size_t sent, int code) {
    broken_ = code;
    for (const std::uint64_t id : std::span(unsent_).subspan(sent)) refused_.push_back({id, -code});
  }

  std::size_t take_refused(std::span<TransferResult> results) {
    std::size_t count = 0;
    for (; count < results.size() && !refused_.empty(); refused_.pop_back())
      results[count++] = refused_.back();
    return count;
  }

  io_uring ring_;
  int depth_;
  int broken_ = 0;     // an errno: the kernel refuses what it should take
  int in_kernel_ = 0;  // sent, without result
  std::vector<std::uint64_t> unsent_;
  std::vector<TransferResult> refused_;  // results of what was not sent
};

bool can_read_and_write(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;  // older than these two
  const bool can = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return can;
}

/// A sandbox may let a ring be made and then not used.
int try_nothing(io_uring& ring) {
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  const int taken = io_uring_submit(&ring);
  if (taken != 1) return taken < 0 ? -taken : EIO;
  io_uring_cqe* entry = nullptr;
  int waited = -EINTR;
  while (waited == -EINTR) waited = io_uring_wait_cqe(&ring, &entry);
  if (waited == 0) io_uring_cqe_seen(&ring, entry);
  return -waited;
}

}  // namespace

UringAttempt try_uring_queue(int depth) {
  io_uring ring = {};
  const int made = io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0);
  if (made < 0) return {nullptr, -made, "io_uring_setup"};
  const bool can = can_read_and_write(ring);
  const int code = can ? try_nothing(ring) : ENOSYS;
  if (code == 0) return {std::make_unique<UringQueue>(ring, depth), 0, ""};
  io_uring_queue_exit(&ring);
  return {nullptr, code, can ? "io_uring_enter" : "io_uring_register"};
}

}  // namespace flatshard::detail
