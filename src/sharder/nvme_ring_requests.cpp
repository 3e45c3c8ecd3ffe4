// What a ring asks of its file: tasks on the file's stream.
#include <cstring>
#include <utility>

#include "nvme_ring.hpp"
#include "plan_build.hpp"

namespace flatshard::detail {

/// Ends what uses a buffer, also where the stream has failed and destroys its tasks unrun: the
/// buffer is about to be read or overwritten on other streams, which know nothing of that.
class NvmeRing::Finish {
 public:
  Finish(NvmeRing& ring, Buffer& buffer) : ring_(&ring), buffer_(&buffer) {}
  Finish(Finish&& other) noexcept
      : ring_(std::exchange(other.ring_, nullptr)), buffer_(other.buffer_) {}
  Finish& operator=(Finish&&) = delete;
  ~Finish() {
    if (ring_ != nullptr) ring_->abandon(*buffer_);
  }
  void operator()() {
    NvmeRing& ring = *std::exchange(ring_, nullptr);
    try {
      ring.run([&] { ring.finish(*buffer_); });
    } catch (...) {
      ring.abandon(*buffer_);
      throw;
    }
  }

 private:
  NvmeRing* ring_;
  Buffer* buffer_;
};

void NvmeRing::enqueue_finish(Buffer& buffer) { stream_.enqueue(Finish(*this, buffer)); }

/// Within a task of the file; after a failure, nothing but that.
template <class Work>
void NvmeRing::run(Work work) {
  check();
  try {
    work();
  } catch (...) {
    const std::lock_guard hold(mutex_);
    if (!failure_) failure_ = std::current_exception();
    failed_ = true;
    throw;
  }
}

template <class Work>
void NvmeRing::enqueue(Work work) {
  stream_.enqueue([this, work] { run(work); });
}

void NvmeRing::check() const {
  if (!failed_) return;
  const std::lock_guard hold(mutex_);
  std::rethrow_exception(failure_);
}

std::span<std::byte> NvmeRing::bytes_of(const SlotState& slot, const Buffer& buffer) const {
  return {buffer.data + slot.buffer_offset, static_cast<std::size_t>(slot.bytes)};
}

/// Ends what uses the buffer.
void NvmeRing::finish(Buffer& buffer) {
  for (const std::size_t index : buffer.slots) settle(slots_[index], index);
  buffer.slots.clear();
}

void NvmeRing::abandon(Buffer& buffer) noexcept {
  for (const std::size_t index : buffer.slots) {
    try {
      settle(slots_[index], index);
    } catch (...) {  // an error came before it
    }
  }
  buffer.slots.clear();
}

void NvmeRing::settle(SlotState& slot, std::size_t index) {
  if (!slot.in_flight) return;
  slot.in_flight = false;
  store_.wait(index);
}

void NvmeRing::begin_read(std::size_t index, Buffer& buffer) {
  SlotState& slot = slots_[index];
  settle(slot, index);
  const std::span<std::byte> bytes = bytes_of(slot, buffer);
  if (slot.tag == 0) {
    std::memset(bytes.data(), 0, bytes.size());
    return;
  }
  store_.begin_read(index, slot.tag, bytes);
  slot.in_flight = true;
  buffer.slots.push_back(index);
}

void NvmeRing::begin_write(std::size_t index, Buffer& buffer) {
  SlotState& slot = slots_[index];
  settle(slot, index);
  store_.begin_write(index, ++slot.tag, bytes_of(slot, buffer));
  slot.in_flight = true;
  buffer.slots.push_back(index);
}

void NvmeRing::read(NvmePart part, int flat) {
  const std::size_t index = slot_of(part, flat);
  if (index == none) return;
  Buffer& buffer = *buffer_of(at(plan_.flats, flat).unit);
  enqueue([this, index, &buffer] { begin_read(index, buffer); });
}

void NvmeRing::await(NvmePart part, int flat) {
  if (slot_of(part, flat) == none) return;
  enqueue_finish(*buffer_of(at(plan_.flats, flat).unit));
}

void NvmeRing::write(NvmePart part, int flat, const StepScalars* decision) {
  const std::size_t index = slot_of(part, flat);
  if (index == none) return;
  Buffer& buffer = *buffer_of(at(plan_.flats, flat).unit);
  enqueue([this, index, &buffer, decision] {
    if (decision == nullptr || decision->apply != 0) begin_write(index, buffer);
  });
}

}  // namespace flatshard::detail
