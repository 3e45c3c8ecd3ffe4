#include "slot_ring.hpp"

#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plan_build.hpp"
#include "runtime.hpp"

namespace flatshard::detail {

namespace {

std::vector<Bytes> sizes_of(const NvmeFile& file) {
  std::vector<Bytes> sizes;
  for (const NvmeSlot& slot : file.slots) sizes.push_back(slot.bytes);
  return sizes;
}

SlotStoreOptions store_options(const NvmeOptions& options) {
  return {.folder = options.folder,
          .backend = options.backend,
          .queue_depth = options.queue_depth,
          .block_bytes = options.block_bytes,
          .bounce_buffers = 1,  // slots and buffers are whole pages
          .direct = options.direct,
          .operations = options.operations,
          .decorate = options.decorate};
}

bool belongs(const Block& block, NvmePart part) {
  switch (block.role) {
    case Role::Master:
    case Role::State:
      return part == NvmePart::Optimizer;
    case Role::Compute:
      return part == NvmePart::Parameters;
    default:
      return part == NvmePart::Gradient;
  }
}

}  // namespace

void* LentMemory::allocate(Bytes bytes) {
  FLATSHARD_EXPECTS(bytes <= bytes_, "a slot store takes more memory than its Plan says");
  return data_;
}

SlotRing::SlotRing(const Plan& plan, const NvmeFile& file, const NvmeOptions& options,
                   Device& device, HostStream& stream, std::span<FlatMemory> flats,
                   const Blocks& blocks)
    : plan_(plan),
      stream_(stream),
      flats_(flats),
      holds_(plan.units.size(), false),
      buffer_of_(plan.units.size(), -1),
      bounce_(blocks.bounce, plan.nvme_block_bytes),
      store_(sizes_of(file), bounce_, store_options(options)) {
  for (auto& slots : slot_of_) slots.assign(plan.flats.size(), none);
  for (const NvmeSlot& slot : file.slots) {
    at(slot_of_, static_cast<int>(slot.part))[static_cast<std::size_t>(slot.flat)] = slots_.size();
    holds_[static_cast<std::size_t>(at(plan.flats, slot.flat).unit)] = true;
    slots_.push_back({slot.flat, slot.part, slot.buffer_offset, slot.bytes, {}, slot.offset});
    for (const Block& block : plan.blocks)
      if (block.memory == Memory::Nvme && block.owner == slot.flat && belongs(block, slot.part))
        slots_.back().blocks.push_back(&block);
  }
  for (std::byte* data : blocks.buffers) {
    buffers_.push_back({.data = data, .used = device.make_event(), .slots = {}});
    buffers_.back().slots.reserve(2 * slots_.size());  // each read and written
  }
}

std::size_t SlotRing::slot_of(NvmePart part, int flat) const {
  return slot_of_[static_cast<std::size_t>(part)][static_cast<std::size_t>(flat)];
}

SlotRing::Buffer* SlotRing::buffer_of(int unit) {
  const int index = at(buffer_of_, unit);
  return index < 0 ? nullptr : &at(buffers_, index);
}

/// Ends what uses a buffer, also where the stream has failed and destroys its tasks unrun: the
/// buffer is about to be read or overwritten on other streams, which know nothing of that.
class SlotRing::Finish {
 public:
  Finish(SlotRing& ring, Buffer& buffer) : ring_(&ring), buffer_(&buffer) {}
  Finish(Finish&& other) noexcept
      : ring_(std::exchange(other.ring_, nullptr)), buffer_(other.buffer_) {}
  Finish& operator=(Finish&&) = delete;
  ~Finish() {
    if (ring_ != nullptr) ring_->abandon(*buffer_);
  }
  void operator()() {
    SlotRing& ring = *std::exchange(ring_, nullptr);
    try {
      ring.run([&] { ring.finish(*buffer_); });
    } catch (...) {
      ring.abandon(*buffer_);
      throw;
    }
  }

 private:
  SlotRing* ring_;
  Buffer* buffer_;
};

void SlotRing::begin(int unit) {
  if (!holds(unit)) return;
  if (Buffer* earlier = buffer_of(unit)) earlier->unit = -1;
  Buffer& buffer = buffers_[next_];
  if (buffer.unit >= 0) {
    bind(buffer.unit, nullptr);
    at(buffer_of_, buffer.unit) = -1;
  }
  at(buffer_of_, unit) = static_cast<int>(next_);
  next_ = (next_ + 1) % buffers_.size();
  buffer.unit = unit;
  stream_.wait(*buffer.used);
  stream_.enqueue(Finish(*this, buffer));
  bind(unit, buffer.data);
}

/// Addresses of the unit's parts; without data: none.
void SlotRing::bind(int unit, std::byte* data) {
  for (const SlotState& slot : slots_)
    if (at(plan_.flats, slot.flat).unit == unit) place(slot, data);
}

void SlotRing::place(const SlotState& slot, std::byte* data) {
  FlatMemory& memory = flats_[static_cast<std::size_t>(slot.flat)];
  const Flat& flat = at(plan_.flats, slot.flat);
  for (const Block* block : slot.blocks) {
    const auto index = static_cast<std::size_t>(block->index);
    std::byte* const there =
        data == nullptr ? nullptr : data + slot.buffer_offset + (block->offset - slot.offset);
    if (block->role == Role::Master) memory.master = there;
    if (block->role == Role::State) memory.states[index] = there;
    if (block->role == Role::Partial) memory.partials[index] = there;
    if (block->role == Role::Gradient) memory.gradient = memory.sum_slice = there;
    if (block->role == Role::Gradient || block->role == Role::ReducedGradient)
      memory.gradient_slice = there;
    if (block->role == Role::Compute) memory.compute = there;
    if (block->role == Role::Compute && flat.rests_whole) memory.resting_whole = there;
  }
}

/// Within a task of the file; after a failure, nothing but that.
template <class Work>
void SlotRing::run(Work work) {
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
void SlotRing::enqueue(Work work) {
  stream_.enqueue([this, work] { run(work); });
}

void SlotRing::check() const {
  if (!failed_) return;
  const std::lock_guard hold(mutex_);
  std::rethrow_exception(failure_);
}

std::span<std::byte> SlotRing::bytes_of(const SlotState& slot, const Buffer& buffer) const {
  return {buffer.data + slot.buffer_offset, static_cast<std::size_t>(slot.bytes)};
}

/// Ends what uses the buffer.
void SlotRing::finish(Buffer& buffer) {
  for (const std::size_t index : buffer.slots) settle(slots_[index], index);
  buffer.slots.clear();
}

void SlotRing::abandon(Buffer& buffer) noexcept {
  for (const std::size_t index : buffer.slots) {
    try {
      settle(slots_[index], index);
    } catch (...) {  // an error came before it
    }
  }
  buffer.slots.clear();
}

void SlotRing::settle(SlotState& slot, std::size_t index) {
  if (!slot.in_flight) return;
  slot.in_flight = false;
  store_.wait(index);
}

void SlotRing::begin_read(std::size_t index, Buffer& buffer) {
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

void SlotRing::begin_write(std::size_t index, Buffer& buffer) {
  SlotState& slot = slots_[index];
  settle(slot, index);
  store_.begin_write(index, ++slot.tag, bytes_of(slot, buffer));
  slot.in_flight = true;
  buffer.slots.push_back(index);
}

void SlotRing::read(NvmePart part, int flat) {
  const std::size_t index = slot_of(part, flat);
  if (index == none) return;
  Buffer& buffer = *buffer_of(at(plan_.flats, flat).unit);
  enqueue([this, index, &buffer] { begin_read(index, buffer); });
}

void SlotRing::await(NvmePart part, int flat) {
  if (slot_of(part, flat) == none) return;
  stream_.enqueue(Finish(*this, *buffer_of(at(plan_.flats, flat).unit)));
}

void SlotRing::write(NvmePart part, int flat, const StepScalars* decision) {
  const std::size_t index = slot_of(part, flat);
  if (index == none) return;
  Buffer& buffer = *buffer_of(at(plan_.flats, flat).unit);
  enqueue([this, index, &buffer, decision] {
    if (decision == nullptr || decision->apply != 0) begin_write(index, buffer);
  });
}

void SlotRing::used_by(int unit, Stream& reader) {
  if (Buffer* buffer = buffer_of(unit)) reader.record(*buffer->used);
}

void SlotRing::bring_and_wait(NvmePart part, int flat, bool writes) {
  const int unit = at(plan_.flats, flat).unit;
  Buffer* buffer = buffer_of(unit);
  if (buffer == nullptr || !buffer->brought) {
    put_back(buffers_[next_]);
    begin(unit);
    buffer = buffer_of(unit);
    for (const int other : at(plan_.units, unit).flats) read(part, other);
    for (const int other : at(plan_.units, unit).flats) await(part, other);
    stream_.synchronize();
    buffer->brought = true;
  }
  buffer->writes = buffer->writes || writes;
}

void SlotRing::put_back(Buffer& buffer) {
  if (buffer.brought && buffer.writes)
    for (const int flat : at(plan_.units, buffer.unit).flats)
      for (const NvmePart part : {NvmePart::Optimizer, NvmePart::Parameters}) write(part, flat);
  buffer.brought = buffer.writes = false;
}

void SlotRing::put_back_and_wait() {
  bool any = false;
  for (Buffer& buffer : buffers_) {
    any = any || buffer.brought;
    put_back(buffer);
  }
  if (any) stream_.synchronize();
}

UnitsAhead::UnitsAhead(Runtime& runtime, std::span<const NvmePart> parts,
                       const std::vector<bool>* takes_part)
    : runtime_(runtime),
      slots_(runtime.optimizer_slots.get()),
      parts_(parts),
      takes_part_(takes_part) {}

bool UnitsAhead::takes_part(int flat) const {
  return takes_part_ == nullptr || (*takes_part_)[static_cast<std::size_t>(flat)];
}

/// All buffers but one, from which the unit before is still being written.
void UnitsAhead::read_ahead() {
  const int most = std::max(1, slots_->buffers() - 1);
  for (; next_ < count_of(runtime_.plan.units) && begun_ < most; ++next_) {
    if (!slots_->holds(next_)) continue;
    ++begun_;
    slots_->begin(next_);
    for (const int flat : runtime_.unit(next_).flats)
      for (const NvmePart part : parts_)
        if (takes_part(flat)) slots_->read(part, flat);
  }
}

void UnitsAhead::await(int unit) {
  if (slots_ == nullptr || !slots_->holds(unit)) return;
  read_ahead();
  for (const int flat : runtime_.unit(unit).flats)
    for (const NvmePart part : parts_)
      if (takes_part(flat)) slots_->await(part, flat);
}

void UnitsAhead::leave(int unit) {
  if (slots_ != nullptr && slots_->holds(unit)) --begun_;
}

}  // namespace flatshard::detail
