#include <flatshard/core/error.hpp>
#include <flatshard/io/io_error.hpp>
#include <flatshard/io/read_ahead.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace flatshard {
namespace {

constexpr int most_tries = 10000;     // interruptions in a row
constexpr int most_short_reads = 50;  // in a row that come no further
constexpr Bytes longest_range = Bytes{1} << 30;

Bytes whole_blocks_below(Bytes bytes) { return bytes / ReadAhead::block * ReadAhead::block; }
Bytes whole_blocks(Bytes bytes) { return whole_blocks_below(bytes + ReadAhead::block - 1); }

/// Of the blocks that hold a range wherever it begins.
Bytes slot_bytes(const std::vector<FileRange>& ranges) {
  Bytes longest = 0;
  for (const FileRange& range : ranges) {
    FLATSHARD_EXPECTS(range.offset >= 0 && range.bytes >= 0 && range.bytes <= longest_range,
                      "ReadAhead: a range of " + std::to_string(range.bytes) + " bytes from byte " +
                          std::to_string(range.offset) + " on");
    longest = std::max(longest, range.bytes);
  }
  return whole_blocks(longest) + ReadAhead::block;
}

/// Other operations than the system's know nothing of io_uring.
std::unique_ptr<TransferQueue> queue_for(const ReadAheadOptions& options) {
  if (options.operations == nullptr) return make_transfer_queue({}, options.depth + 1).queue;
  return make_transfer_queue(IoBackend::Threads, options.depth + 1, *options.operations).queue;
}

}  // namespace

ReadAhead::ReadAhead(std::vector<FileRange> ranges, MemoryResource& memory,
                     const ReadAheadOptions& options)
    : ranges_(std::move(ranges)), page_cache_(options.page_cache) {
  FLATSHARD_EXPECTS(options.depth >= 1,
                    "ReadAhead: depth " + std::to_string(options.depth) + " is below 1");
  if (ranges_.empty()) return;
  const Bytes bytes = slot_bytes(ranges_);
  slots_.resize(std::min(static_cast<std::size_t>(options.depth) + 1, ranges_.size()));
  memory_ = Buffer(memory, bytes * static_cast<Bytes>(slots_.size()));
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    slots_[slot].memory =
        static_cast<std::byte*>(memory_.data()) + static_cast<Bytes>(slot) * bytes;
  queue_ = queue_for(options);
  while (begun_ < slots_.size()) begin(begun_++);
}

ReadAhead::~ReadAhead() {
  while (in_flight_ > 0) {
    for (Slot& slot : slots_) slot.needed = 0;  // nothing is continued
    take_results();
  }
}

int ReadAhead::descriptor_of(const File& file) {
  if (page_cache_) return file.descriptor();
  const auto [found, is_new] = past_cache_.try_emplace(&file);
  if (is_new) found->second = file.reopen_past_cache();
  return (found->second ? *found->second : file).descriptor();
}

void ReadAhead::begin(std::size_t range) {
  const auto& [file, offset, bytes] = ranges_[range];
  Slot& slot = slot_of(range);
  const Bytes begin = whole_blocks_below(offset), end = offset + bytes;
  slot = {slot.memory, descriptor_of(*file), begin, whole_blocks(end) - begin, end - begin};
  if (bytes > 0) submit(slot);
}

void ReadAhead::submit(Slot& slot) {
  const Transfer transfer{
      Transfer::Kind::Read,    slot.descriptor,
      slot.memory + slot.done, slot.length - slot.done,
      slot.begin + slot.done,  static_cast<std::uint64_t>(&slot - slots_.data())};
  slot.pending = true;
  ++in_flight_;
  queue_->submit({&transfer, 1});
}

void ReadAhead::take_results() {
  std::array<TransferResult, 8> results;
  const std::size_t count = queue_->wait(results);
  for (const TransferResult& result : std::span(results).first(count)) {
    Slot& slot = slots_[static_cast<std::size_t>(result.id)];
    slot.pending = false;
    --in_flight_;
    take(slot, result.moved);
  }
}

/// A read goes on where a whole block ended: past the cache it may begin nowhere else. One that
/// moves nothing, or often in a row comes no further, has met the end of the file.
void ReadAhead::take(Slot& slot, std::int64_t moved) {
  const bool again = moved == -EINTR || moved == -EAGAIN;
  slot.code = moved < 0 ? static_cast<int>(-moved) : 0;
  const Bytes reached = slot.done + std::max<std::int64_t>(moved, 0);
  slot.interruptions = reached > slot.reached ? 0 : slot.interruptions + 1;
  slot.reached = std::max(slot.reached, reached);
  const int most = again ? most_tries : most_short_reads;
  const bool goes_on = (again || moved > 0) && slot.interruptions < most;
  if (slot.reached >= slot.needed || !goes_on) return;
  slot.done = whole_blocks_below(slot.reached);
  submit(slot);
}

std::span<const std::byte> ReadAhead::next() {
  FLATSHARD_EXPECTS(next_ < ranges_.size(), "ReadAhead: all " + std::to_string(ranges_.size()) +
                                                " ranges were had already");
  if (next_ > 0 && begun_ < ranges_.size()) begin(begun_++);
  const FileRange& range = ranges_[next_];
  const Slot& slot = slot_of(next_++);
  while (slot.pending) take_results();
  if (range.bytes > 0 && slot.reached < slot.needed) fail(slot, range);
  return {slot.memory + (range.offset - slot.begin), static_cast<std::size_t>(range.bytes)};
}

void ReadAhead::fail(const Slot& slot, const FileRange& range) const {
  const Bytes done = std::max(slot.begin + slot.reached - range.offset, Bytes{0});
  throw IoError("read", range.file->path(), range.offset + done, slot.code,
                std::to_string(done) + " of " + std::to_string(range.bytes) + " bytes from byte " +
                    std::to_string(range.offset) + " on");
}

}  // namespace flatshard
