// The thread that carries out the requests of a slot store.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fixed_ring.hpp"

namespace flatshard::detail {

/// What a store's thread works on.
struct SlotWork {
  std::vector<Bytes> slot_bytes;
  Bytes block_bytes = 0;
  Bytes alignment = 0;
  int descriptor = -1;
  std::string path;             // for messages
  bool direct = false;          // memory must be aligned
  std::span<std::byte> bounce;  // whole blocks, aligned
};

/// Slots lie one after the other, each at a multiple of the alignment, in blocks. Calls belong to
/// one thread at a time.
class SlotWorker {
 public:
  SlotWorker(SlotWork work, std::unique_ptr<TransferQueue> queue);
  /// Waits for transfers in flight; requests are abandoned.
  ~SlotWorker();
  SlotWorker(const SlotWorker&) = delete;
  SlotWorker& operator=(const SlotWorker&) = delete;

  const SlotWork& work() const { return work_; }
  const TransferQueue& queue() const { return *queue_; }

  /// The slot must have no request. The error of its last one is thrown when nobody has seen it.
  void begin(std::size_t slot, Transfer::Kind kind, std::byte* data, std::int64_t tag);
  bool finished(std::size_t slot) const;
  /// Blocks until the slot has no request; its error is taken out.
  std::exception_ptr wait(std::size_t slot);

 private:
  static constexpr std::int64_t unknown = -1;  // no tag: never written, or not wholly

  struct Slot {
    Bytes offset = 0;             // in the file
    std::size_t first_block = 0;  // of all blocks
    // The request. While `busy` these belong to the thread.
    Transfer::Kind kind = Transfer::Kind::Read;
    std::byte* data = nullptr;
    std::int64_t tag = unknown;
    Bytes begun = 0;  // up to here blocks were begun
    int in_flight = 0;
    std::exception_ptr failure;
    // Under the mutex.
    bool busy = false;
    std::exception_ptr error;  // of the last request, not yet seen
  };
  /// Of what was last written.
  struct Block {
    std::int64_t tag = unknown;
    std::uint32_t digest = 0;  // CRC32C of its bytes, without padding
  };
  /// A block on its way.
  struct Piece {
    std::size_t slot = 0, block = 0;  // block: of the slot
    std::span<std::byte> data;        // the caller's
    std::byte* memory = nullptr;      // what is transferred: data, or a bounce buffer
    Bytes padded = 0, done = 0;       // of the transfer
    Bytes offset = 0;                 // in the file
    int attempts = 0;                 // in a row, without progress
    std::uint32_t digest = 0;         // of a write
  };

  void run() noexcept;
  bool wait_for_work();
  std::optional<std::size_t> next_request();
  void begin_blocks();
  bool begin_block(std::size_t slot);
  bool may_begin(std::size_t slot, std::size_t block);
  bool find_memory(Piece& piece);
  void prepare_write(Piece& piece);
  void submit(std::size_t piece);
  void collect();
  void settle(const TransferResult& result);
  void continue_or_fail(std::size_t piece, std::int64_t moved);
  void conclude_arrived();
  void conclude(std::size_t piece);
  void verify(const Piece& piece);
  void release(std::size_t piece);
  template <class Throw>
  void fail(std::size_t slot, Throw call);
  void finish_if_done(std::size_t slot);

  Block& block_of(const Piece& piece) {
    return blocks_[slots_[piece.slot].first_block + piece.block];
  }
  bool has_more(std::size_t slot) const { return slots_[slot].begun < work_.slot_bytes[slot]; }
  bool is_bounce(const Piece& piece) const { return piece.memory != piece.data.data(); }
  const char* operation_of(const Piece& piece) const;
  std::string place_of(std::size_t slot, std::size_t block) const;

  SlotWork work_;
  std::unique_ptr<TransferQueue> queue_;
  std::vector<Slot> slots_;
  // Of the thread alone.
  std::vector<Block> blocks_;
  std::vector<Piece> pieces_;  // (2 * queue depth): in the queue, or arrived
  std::vector<std::size_t> free_pieces_;
  std::vector<std::size_t> arrived_;  // transferred, not yet checked
  std::vector<std::byte*> free_bounces_;
  int in_queue_ = 0;                     // pieces
  std::vector<TransferResult> results_;  // (queue depth)
  std::optional<std::size_t> current_;   // the slot whose blocks are being begun

  mutable std::mutex mutex_;
  std::condition_variable has_work_, has_finished_;
  FixedRing<std::size_t> requests_;  // slots, in the order of their requests
  bool stopped_ = false;

  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace flatshard::detail
