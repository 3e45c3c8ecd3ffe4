#include "nvme_ring.hpp"

#include <flatshard/core/error.hpp>

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

NvmeRing::NvmeRing(const Plan& plan, const NvmeFile& file, const NvmeOptions& options,
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

std::size_t NvmeRing::slot_of(NvmePart part, int flat) const {
  return slot_of_[static_cast<std::size_t>(part)][static_cast<std::size_t>(flat)];
}

NvmeRing::Buffer* NvmeRing::buffer_of(int unit) {
  const int index = at(buffer_of_, unit);
  return index < 0 ? nullptr : &at(buffers_, index);
}

void NvmeRing::begin(int unit) {
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
  enqueue_finish(buffer);
  bind(unit, buffer.data);
}

/// Addresses of the unit's parts; without data: none.
void NvmeRing::bind(int unit, std::byte* data) {
  for (const SlotState& slot : slots_)
    if (at(plan_.flats, slot.flat).unit == unit) place(slot, data);
}

void NvmeRing::place(const SlotState& slot, std::byte* data) {
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

void NvmeRing::used_by(int unit, Stream& reader) {
  if (Buffer* buffer = buffer_of(unit)) reader.record(*buffer->used);
}

void NvmeRing::bring_and_wait(NvmePart part, int flat, bool writes) {
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

void NvmeRing::put_back(Buffer& buffer) {
  if (buffer.brought && buffer.writes)
    for (const int flat : at(plan_.units, buffer.unit).flats)
      for (const NvmePart part : {NvmePart::Optimizer, NvmePart::Parameters}) write(part, flat);
  buffer.brought = buffer.writes = false;
}

void NvmeRing::put_back_and_wait() {
  bool any = false;
  for (Buffer& buffer : buffers_) {
    any = any || buffer.brought;
    put_back(buffer);
  }
  if (any) stream_.synchronize();
}

}  // namespace flatshard::detail
