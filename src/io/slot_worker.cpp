#include "slot_worker.hpp"

#include <flatshard/io/crc32c.hpp>
#include <flatshard/io/integrity_error.hpp>
#include <flatshard/io/io_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace flatshard::detail {
namespace {

// Attempts of a transfer in a row that move nothing and are not errors either.
constexpr int most_attempts = 1000;

bool is_aligned(const std::byte* data, Bytes alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0;
}

bool tries_again(std::int64_t moved) { return moved == -EINTR || moved == -EAGAIN; }

}  // namespace

SlotWorker::SlotWorker(SlotWork work, std::unique_ptr<TransferQueue> queue)
    : work_(std::move(work)),
      queue_(std::move(queue)),
      slots_(work_.slot_bytes.size()),
      pieces_(2 * static_cast<std::size_t>(queue_->depth())),
      results_(static_cast<std::size_t>(queue_->depth())),
      requests_(std::max<std::size_t>(slots_.size(), 1)) {
  Bytes offset = 0;
  std::size_t blocks = 0;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    slots_[s].offset = offset;
    slots_[s].first_block = blocks;
    offset += round_up(work_.slot_bytes[s], work_.alignment);
    blocks += static_cast<std::size_t>(ceil_div(work_.slot_bytes[s], work_.block_bytes));
  }
  blocks_.resize(blocks);
  for (std::size_t p = 0; p < pieces_.size(); ++p) free_pieces_.push_back(p);
  const auto block = static_cast<std::size_t>(work_.block_bytes);
  for (std::size_t at = 0; at < work_.bounce.size(); at += block)
    free_bounces_.push_back(work_.bounce.data() + at);
  arrived_.reserve(pieces_.size());
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw IoError("start thread", work_.path, -1, error.code().value());
  }
}

SlotWorker::~SlotWorker() {
  {
    const std::lock_guard hold(mutex_);
    stopped_ = true;
  }
  has_work_.notify_one();
  thread_.join();
}

void SlotWorker::begin(std::size_t slot, Transfer::Kind kind, std::byte* data, std::int64_t tag) {
  const std::lock_guard hold(mutex_);
  Slot& its = slots_[slot];
  if (its.error) std::rethrow_exception(std::exchange(its.error, nullptr));
  if (work_.slot_bytes[slot] == 0) return;
  its.kind = kind;
  its.data = data;
  its.tag = tag;
  its.begun = 0;
  its.busy = true;
  requests_.push(slot);
  has_work_.notify_one();
}

bool SlotWorker::finished(std::size_t slot) const {
  const std::lock_guard hold(mutex_);
  return !slots_[slot].busy;
}

std::exception_ptr SlotWorker::wait(std::size_t slot) {
  std::unique_lock hold(mutex_);
  has_finished_.wait(hold, [&] { return !slots_[slot].busy; });
  return std::exchange(slots_[slot].error, nullptr);
}

void SlotWorker::run() noexcept {
  while (wait_for_work()) {
    begin_blocks();
    conclude_arrived();
    if (in_queue_ > 0) collect();
  }
}

/// False: the end. What is in flight comes first: its memory is somebody's.
bool SlotWorker::wait_for_work() {
  std::unique_lock hold(mutex_);
  if (stopped_) current_.reset();
  if (in_queue_ > 0 || !arrived_.empty()) return true;
  has_work_.wait(hold, [&] { return stopped_ || current_ || !requests_.empty(); });
  return !stopped_;
}

std::optional<std::size_t> SlotWorker::next_request() {
  const std::lock_guard hold(mutex_);
  if (stopped_ || requests_.empty()) return std::nullopt;
  return requests_.pop();
}

/// Fills the queue. A request that arrives while the thread waits for a result is begun with the
/// next one.
void SlotWorker::begin_blocks() {
  while (in_queue_ < queue_->depth() && !free_pieces_.empty()) {
    if (!current_) current_ = next_request();
    if (!current_ || (has_more(*current_) && !begin_block(*current_))) break;
    if (!has_more(*current_)) finish_if_done(*std::exchange(current_, std::nullopt));
  }
}

/// False: a bounce buffer is needed and none is free.
bool SlotWorker::begin_block(std::size_t slot) {
  Slot& its = slots_[slot];
  const Bytes bytes = std::min(work_.block_bytes, work_.slot_bytes[slot] - its.begun);
  const auto block = static_cast<std::size_t>(its.begun / work_.block_bytes);
  if (!may_begin(slot, block)) return true;
  const std::size_t index = free_pieces_.back();
  Piece& piece = pieces_[index];
  piece = {.slot = slot,
           .block = block,
           .data = {its.data + its.begun, static_cast<std::size_t>(bytes)},
           .padded = round_up(bytes, work_.alignment),
           .offset = its.offset + its.begun};
  if (!find_memory(piece)) return false;
  free_pieces_.pop_back();
  its.begun += bytes;
  ++its.in_flight;
  if (its.kind == Transfer::Kind::Write) prepare_write(piece);
  submit(index);
  return true;
}

/// What was not written under the tag is not read.
bool SlotWorker::may_begin(std::size_t slot, std::size_t block) {
  const Slot& its = slots_[slot];
  const std::int64_t found = blocks_[its.first_block + block].tag;
  if (its.kind == Transfer::Kind::Write || found == its.tag) return true;
  fail(slot, [&] {
    const std::string held = found == unknown ? "was not wholly written"
                                              : fmt::format("was written under tag {}", found);
    throw IntegrityError("read", work_.path, its.offset + its.begun,
                         fmt::format("{} {}, not {}", place_of(slot, block), held, its.tag));
  });
  return false;
}

bool SlotWorker::find_memory(Piece& piece) {
  const bool whole = piece.padded == static_cast<Bytes>(piece.data.size());
  const bool fits = !work_.direct || is_aligned(piece.data.data(), work_.alignment);
  piece.memory = piece.data.data();
  if (whole && fits) return true;
  if (free_bounces_.empty()) return false;
  piece.memory = free_bounces_.back();
  free_bounces_.pop_back();
  return true;
}

/// Until it is done the block holds neither its old bytes nor its new ones.
void SlotWorker::prepare_write(Piece& piece) {
  block_of(piece).tag = unknown;
  piece.digest = crc32c(piece.data);
  if (!is_bounce(piece)) return;
  std::byte* const end = std::copy(piece.data.begin(), piece.data.end(), piece.memory);
  std::fill(end, piece.memory + piece.padded, std::byte{0});
}

void SlotWorker::submit(std::size_t index) {
  const Piece& piece = pieces_[index];
  const Transfer transfer{.kind = slots_[piece.slot].kind,
                          .file = work_.descriptor,
                          .data = piece.memory + piece.done,
                          .bytes = piece.padded - piece.done,
                          .offset = piece.offset + piece.done,
                          .id = index};
  queue_->submit({&transfer, 1});
  ++in_queue_;
}

void SlotWorker::collect() {
  const std::size_t count = queue_->wait(results_);
  in_queue_ -= static_cast<int>(count);
  for (std::size_t n = 0; n < count; ++n) settle(results_[n]);
}

void SlotWorker::settle(const TransferResult& result) {
  const auto index = static_cast<std::size_t>(result.id);
  const Piece& piece = pieces_[index];
  if (result.moved == piece.padded - piece.done)
    arrived_.push_back(index);
  else
    continue_or_fail(index, result.moved);
}

/// A short transfer goes on at the last multiple of the alignment, where the file system takes it.
void SlotWorker::continue_or_fail(std::size_t index, std::int64_t moved) {
  Piece& piece = pieces_[index];
  const bool is_short = moved > 0 && moved < piece.padded - piece.done;
  const Bytes progress = is_short ? moved - moved % work_.alignment : 0;
  piece.done += progress;
  piece.attempts = progress > 0 ? 0 : piece.attempts + 1;
  if ((is_short || tries_again(moved)) && piece.attempts < most_attempts &&
      !slots_[piece.slot].failure)
    return submit(index);
  const bool is_end = moved == 0 && slots_[piece.slot].kind == Transfer::Kind::Read;
  const int code = is_end ? 0 : moved < 0 ? static_cast<int>(-moved) : EIO;
  fail(piece.slot, [&] {
    throw IoError(operation_of(piece), work_.path, piece.offset + piece.done, code,
                  fmt::format("{}: {} of {} bytes", place_of(piece.slot, piece.block), piece.done,
                              piece.padded));
  });
  release(index);
}

/// After the queue has got its next blocks: checking takes a while.
void SlotWorker::conclude_arrived() {
  for (const std::size_t index : arrived_) conclude(index);
  arrived_.clear();
}

void SlotWorker::conclude(std::size_t index) {
  const Piece& piece = pieces_[index];
  if (slots_[piece.slot].kind == Transfer::Kind::Write)
    block_of(piece) = {slots_[piece.slot].tag, piece.digest};
  else
    verify(piece);
  release(index);
}

void SlotWorker::verify(const Piece& piece) {
  const std::span<const std::byte> read(piece.memory, piece.data.size());
  const std::uint32_t expected = blocks_[slots_[piece.slot].first_block + piece.block].digest;
  const std::uint32_t found = crc32c(read);
  if (found != expected)
    return fail(piece.slot, [&] {
      throw IntegrityError("read", work_.path, piece.offset,
                           fmt::format("{}: CRC32C {:08x}, written was {:08x}",
                                       place_of(piece.slot, piece.block), found, expected));
    });
  if (is_bounce(piece)) std::copy(read.begin(), read.end(), piece.data.begin());
}

void SlotWorker::release(std::size_t index) {
  const Piece& piece = pieces_[index];
  if (is_bounce(piece)) free_bounces_.push_back(piece.memory);
  free_pieces_.push_back(index);
  --slots_[piece.slot].in_flight;
  finish_if_done(piece.slot);
}

/// The first failure of a request is its error; no more of its blocks are begun.
template <class Throw>
void SlotWorker::fail(std::size_t slot, Throw call) {
  Slot& its = slots_[slot];
  try {
    if (!its.failure) call();
  } catch (...) {
    its.failure = std::current_exception();  // also when there was no memory for it
  }
  its.begun = work_.slot_bytes[slot];
}

void SlotWorker::finish_if_done(std::size_t slot) {
  Slot& its = slots_[slot];
  if (its.in_flight > 0 || has_more(slot) || slot == current_) return;
  {
    const std::lock_guard hold(mutex_);
    its.error = std::exchange(its.failure, nullptr);
    its.busy = false;
  }
  has_finished_.notify_all();
}

const char* SlotWorker::operation_of(const Piece& piece) const {
  return slots_[piece.slot].kind == Transfer::Kind::Write ? "write" : "read";
}

std::string SlotWorker::place_of(std::size_t slot, std::size_t block) const {
  const auto blocks = ceil_div(work_.slot_bytes[slot], work_.block_bytes);
  return fmt::format("slot {}, block {} of {}", slot, block, blocks);
}

}  // namespace flatshard::detail
