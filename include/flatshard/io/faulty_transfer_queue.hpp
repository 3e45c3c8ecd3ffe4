// Makes asynchronous transfers fail on purpose, for tests.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/core/host_memory.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace flatshard {

/// What goes wrong. Transfers are counted from 1, in the order of submission.
struct TransferFaults {
  /// How a transfer goes wrong.
  enum class Kind : std::uint8_t {
    Error,       // nothing is moved; the result is -code
    ShortCount,  // half of the bytes are moved, and the result says so
    Nothing,     // nothing is moved; the result is 0
    FlippedBit,  // all is moved, one bit of it wrong: of the memory for reads, of the file for
                 // writes
    Lost         // nothing is moved; the result says that all was
  };
  std::int64_t transfer = 0;  // the n-th transfer is the first to go wrong; 0: none
  Kind kind = Kind::Error;    // how
  int code = 5;               // EIO
  bool sticky = false;        // all transfers after it go wrong alike
};

/// Passes transfers on to `inner`, or lets them fail. Belongs to one thread.
class FaultyTransferQueue final : public TransferQueue {
 public:
  /// Counting starts at 1.
  FaultyTransferQueue(std::unique_ptr<TransferQueue> inner, TransferFaults faults);

  IoBackend backend() const override { return inner_->backend(); }
  int depth() const override { return inner_->depth(); }
  void submit(std::span<const Transfer> transfers) noexcept override;
  std::size_t wait(std::span<TransferResult> results) noexcept override;

 private:
  /// A transfer of inner_ that gets a wrong bit. What is written is a copy: others may read the
  /// memory of a write meanwhile.
  struct Flipping {
    Transfer transfer;
    Buffer copy;
  };

  bool goes_wrong();
  void submit_faulty(const Transfer& transfer);
  void submit_flipped(const Transfer& transfer);
  void settle(const TransferResult& result);

  HostMemory memory_;              // of copies
  std::vector<Flipping> to_flip_;  // goes after inner_, which writes them
  std::unique_ptr<TransferQueue> inner_;
  TransferFaults faults_;
  std::int64_t transfers_ = 0;
  std::vector<TransferResult> made_up_;  // results that inner_ knows nothing of
};

}  // namespace flatshard
