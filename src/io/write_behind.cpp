#include <flatshard/core/error.hpp>
#include <flatshard/io/io_error.hpp>
#include <flatshard/io/write_behind.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace flatshard {
namespace {

constexpr Bytes longest_block = Bytes{1} << 30;

/// Other operations than the system's know nothing of io_uring.
std::unique_ptr<TransferQueue> queue_for(const WriteBehindOptions& options) {
  if (options.operations == nullptr) return make_transfer_queue({}, options.depth + 1).queue;
  return make_transfer_queue(IoBackend::Threads, options.depth + 1, *options.operations).queue;
}

/// At least the 4096 bytes that transfers past the cache may need. A page of the cache must not be
/// written through it and past it, or the system reports bytes as lost that are there.
Bytes page_bytes() { return std::max<Bytes>(4096, ::sysconf(_SC_PAGESIZE)); }

/// What File::write may still bring to an end.
bool can_go_on(std::int64_t moved) {
  return moved >= 0 || moved == -EINTR || moved == -EAGAIN || moved == -EINVAL;
}

}  // namespace

WriteBehind::WriteBehind(MemoryResource& memory, const WriteBehindOptions& options)
    : resource_(memory),
      options_(options),
      page_(page_bytes()),
      least_body_(std::min(options.block_bytes, short_run)) {
  FLATSHARD_EXPECTS(options.depth >= 1,
                    "WriteBehind: depth " + std::to_string(options.depth) + " is below 1");
  FLATSHARD_EXPECTS(options.block_bytes >= 1 && options.block_bytes <= longest_block,
                    "WriteBehind: blocks of " + std::to_string(options.block_bytes) +
                        " bytes are not in 1 to 2^30");
  options_.block_bytes = round_up(options.block_bytes, page_);
}

WriteBehind::~WriteBehind() = default;

void WriteBehind::reserve() {
  if (!slots_.empty() || options_.page_cache) return;
  const auto count = static_cast<std::size_t>(options_.depth) + 1;
  memory_ = Buffer(resource_, options_.block_bytes * static_cast<Bytes>(count));
  auto* memory = static_cast<std::byte*>(memory_.data());
  for (std::size_t slot = 0; slot < count; ++slot, memory += options_.block_bytes) {
    slots_.push_back({memory});
    free_.push_back(slot);
  }
}

void WriteBehind::turn_to(File& file) {
  wait();
  if (!options_.page_cache) past_cache_ = file.reopen_past_cache();
  if (past_cache_) reserve();
  refused_ = false;
  file_ = &file;
}

void WriteBehind::write(File& file, Bytes offset, std::span<const std::byte> bytes) {
  FLATSHARD_EXPECTS(offset >= 0, "WriteBehind: bytes from " + std::to_string(offset) + " on");
  if (file_ != &file) turn_to(file);
  if (!past_cache_) {
    file.write(offset, bytes);
    file.hint(FileHint::StartWriteback, offset, static_cast<Bytes>(bytes.size()));
    return;
  }
  while (!bytes.empty()) {
    if (filling_ == nullptr || filling_->last != offset) start(offset);
    const Bytes room = filling_->begin + options_.block_bytes - offset;
    const auto part = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(room)));
    append(part);
    bytes = bytes.subspan(part.size());
    offset += static_cast<Bytes>(part.size());
  }
}

/// A run of bytes that begins at `offset`; the one before, if any, has ended.
void WriteBehind::start(Bytes offset) {
  if (filling_ != nullptr) send();
  while (free_.empty()) take_result();
  filling_ = &slots_[free_.back()];
  free_.pop_back();
  *filling_ = {filling_->memory, offset / page_ * page_, offset, offset};
}

void WriteBehind::append(std::span<const std::byte> bytes) {
  std::memcpy(filling_->at(filling_->last), bytes.data(), bytes.size());
  filling_->last += static_cast<Bytes>(bytes.size());
  if (filling_->last == filling_->begin + options_.block_bytes) send();
}

void WriteBehind::send() {
  Slot& slot = *filling_;
  filling_ = nullptr;
  slot.body_begin = round_up(slot.first, page_);
  slot.body_end = slot.last / page_ * page_;
  if (refused_ || slot.body_end - slot.body_begin < least_body_) {
    free_.push_back(static_cast<std::size_t>(&slot - slots_.data()));
    return through_cache(slot, slot.first, slot.last);
  }
  submit(slot);
  through_cache(slot, slot.first, slot.body_begin);
  through_cache(slot, slot.body_end, slot.last);
}

void WriteBehind::submit(const Slot& slot) {
  if (queue_ == nullptr) queue_ = queue_for(options_);
  const Transfer transfer{
      Transfer::Kind::Write,    past_cache_->descriptor(),
      slot.at(slot.body_begin), slot.body_end - slot.body_begin,
      slot.body_begin,          static_cast<std::uint64_t>(&slot - slots_.data())};
  ++in_flight_;
  queue_->submit({&transfer, 1});
}

void WriteBehind::take_result() {
  TransferResult result;
  queue_->wait({&result, 1});
  --in_flight_;
  const auto slot = static_cast<std::size_t>(result.id);
  free_.push_back(slot);
  take(slots_[slot], result.moved);
}

/// What came short is finished through the cache: past it a write may begin at blocks only.
void WriteBehind::take(const Slot& slot, std::int64_t moved) {
  const Bytes begin = slot.body_begin, end = slot.body_end;
  if (moved == end - begin) return;
  if (!can_go_on(moved))
    throw IoError("write", file_->path(), begin, static_cast<int>(-moved),
                  std::to_string(end - begin) + " bytes from byte " + std::to_string(begin) +
                      " on, past the page cache");
  refused_ = refused_ || moved == -EINVAL;
  through_cache(slot, begin + std::max<std::int64_t>(moved, 0), end);
}

void WriteBehind::through_cache(const Slot& slot, Bytes from, Bytes to) {
  if (from < to) file_->write(from, {slot.at(from), static_cast<std::size_t>(to - from)});
}

void WriteBehind::wait() {
  if (filling_ != nullptr) send();
  while (in_flight_ > 0) take_result();
  past_cache_.reset();
  file_ = nullptr;
}

}  // namespace flatshard
