#include <flatshard/core/error.hpp>
#include <flatshard/io/slot_store.hpp>

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "scratch_file.hpp"
#include "slot_worker.hpp"

namespace flatshard {
namespace {

static_assert(SlotStore::alignment == detail::ScratchFile::alignment);
constexpr Bytes most_block_bytes = Bytes{1} << 30;

Bytes block_bytes_of(const SlotStoreOptions& options) {
  const Bytes bytes = options.block_bytes;
  FLATSHARD_EXPECTS(
      bytes > 0 && bytes <= most_block_bytes && bytes % SlotStore::alignment == 0,
      fmt::format("SlotStore: block_bytes {} is not a multiple of {} between {} and {}", bytes,
                  SlotStore::alignment, SlotStore::alignment, most_block_bytes));
  return bytes;
}

std::vector<Bytes> checked(std::span<const Bytes> slot_bytes) {
  for (std::size_t slot = 0; slot < slot_bytes.size(); ++slot)
    FLATSHARD_EXPECTS(slot_bytes[slot] >= 0,
                      fmt::format("SlotStore: slot {} has {} bytes", slot, slot_bytes[slot]));
  return {slot_bytes.begin(), slot_bytes.end()};
}

FileOperations& operations_of(const SlotStoreOptions& options) {
  return options.operations != nullptr ? *options.operations : posix_file_operations();
}

std::span<std::byte> span_of(const Buffer& buffer) {
  return {static_cast<std::byte*>(buffer.data()), static_cast<std::size_t>(buffer.size())};
}

std::unique_ptr<TransferQueue> decorated(const SlotStoreOptions& options,
                                         std::unique_ptr<TransferQueue> queue) {
  return options.decorate ? options.decorate(std::move(queue)) : std::move(queue);
}

}  // namespace

class SlotStore::Parts {
 public:
  Parts(std::span<const Bytes> slot_bytes, MemoryResource& memory, const SlotStoreOptions& options)
      : bounce_(memory, bounce_bytes(options)),
        made_(make_transfer_queue(options.backend, options.queue_depth, operations_of(options))),
        file_({options.folder, file_bytes(slot_bytes), options.direct, operations_of(options)}),
        worker_({.slot_bytes = checked(slot_bytes),
                 .block_bytes = block_bytes_of(options),
                 .alignment = alignment,
                 .descriptor = file_.file().descriptor(),
                 .path = file_.file().path(),
                 .direct = file_.direct(),
                 .bounce = span_of(bounce_)},
                decorated(options, std::move(made_.queue))) {}

  const detail::ScratchFile& file() const { return file_; }
  const std::string& fallback() const { return made_.fallback; }
  detail::SlotWorker& worker() { return worker_; }

  void begin(const char* call, std::size_t slot, Transfer::Kind kind, std::int64_t tag,
             std::span<std::byte> data) {
    const Bytes bytes = bytes_of(call, slot);
    FLATSHARD_EXPECTS(static_cast<Bytes>(data.size()) == bytes,
                      fmt::format("SlotStore::{}: slot {} has {} bytes, the memory given has {}",
                                  call, slot, bytes, data.size()));
    FLATSHARD_EXPECTS(tag >= 0, fmt::format("SlotStore::{}: slot {}: tag {}", call, slot, tag));
    FLATSHARD_EXPECTS(worker_.finished(slot),
                      fmt::format("SlotStore::{}: slot {}: its last request goes on; call wait({})",
                                  call, slot, slot));
    worker_.begin(slot, kind, data.data(), tag);
  }
  Bytes bytes_of(const char* call, std::size_t slot) const {
    const auto& slot_bytes = worker_.work().slot_bytes;
    FLATSHARD_EXPECTS(slot < slot_bytes.size(),
                      fmt::format("SlotStore::{}: slot {} of {}", call, slot, slot_bytes.size()));
    return slot_bytes[slot];
  }

 private:
  Buffer bounce_;
  MadeQueue made_;
  detail::ScratchFile file_;
  detail::SlotWorker worker_;  // ends first: its transfers use the rest
};

SlotStore::SlotStore(std::span<const Bytes> slot_bytes, MemoryResource& memory,
                     SlotStoreOptions options)
    : parts_(std::make_unique<Parts>(slot_bytes, memory, options)) {}
SlotStore::~SlotStore() = default;

Bytes SlotStore::bounce_bytes(const SlotStoreOptions& options) {
  FLATSHARD_EXPECTS(options.bounce_buffers >= 1,
                    fmt::format("SlotStore: bounce_buffers {}", options.bounce_buffers));
  return options.bounce_buffers * block_bytes_of(options);
}

Bytes SlotStore::file_bytes(std::span<const Bytes> slot_bytes) {
  Bytes sum = 0;
  for (const Bytes bytes : checked(slot_bytes)) sum += round_up(bytes, alignment);
  return sum;
}

std::size_t SlotStore::slots() const { return parts_->worker().work().slot_bytes.size(); }
Bytes SlotStore::bytes(std::size_t slot) const { return parts_->bytes_of("bytes", slot); }
IoBackend SlotStore::backend() const { return parts_->worker().queue().backend(); }
const std::string& SlotStore::fallback() const { return parts_->fallback(); }
bool SlotStore::direct() const { return parts_->file().direct(); }
bool SlotStore::space_reserved() const { return parts_->file().reserved(); }

std::string SlotStore::description() const {
  const std::string why = fallback().empty() ? "" : fmt::format(" ({})", fallback());
  return fmt::format("{}{}, {}, depth {}, blocks of {} bytes{}", to_string(backend()), why,
                     direct() ? "direct" : "through the page cache",
                     parts_->worker().queue().depth(), parts_->worker().work().block_bytes,
                     space_reserved() ? "" : ", space not reserved");
}

void SlotStore::begin_write(std::size_t slot, std::int64_t tag, std::span<const std::byte> data) {
  // Only read: transfers of both kinds have one type.
  const std::span<std::byte> bytes(const_cast<std::byte*>(data.data()), data.size());
  parts_->begin("begin_write", slot, Transfer::Kind::Write, tag, bytes);
}

void SlotStore::begin_read(std::size_t slot, std::int64_t tag, std::span<std::byte> data) {
  parts_->begin("begin_read", slot, Transfer::Kind::Read, tag, data);
}

bool SlotStore::finished(std::size_t slot) const {
  parts_->bytes_of("finished", slot);
  return parts_->worker().finished(slot);
}

void SlotStore::wait(std::size_t slot) {
  parts_->bytes_of("wait", slot);
  if (const std::exception_ptr error = parts_->worker().wait(slot)) std::rethrow_exception(error);
}

void SlotStore::wait_all() {
  std::exception_ptr first;
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    const std::exception_ptr error = parts_->worker().wait(slot);
    if (!first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace flatshard
