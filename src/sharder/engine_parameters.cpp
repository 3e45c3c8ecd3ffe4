// Setting and reading parameters outside a step: initialisation, assignment, summoning.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "engine_parts.hpp"
#include "units_ahead.hpp"

namespace flatshard {

namespace {

/// A parameter's part that this rank holds, and the memory that is authoritative for it.
struct Piece {
  Elements parameter_offset;
  Elements count;
  std::byte* data;
  DType dtype;
  Tier tier;  // where `data` is
};

bool is_whole(const Flat& flat) { return !flat.requires_grad && flat.rests_whole; }

/// Where the memory is that is authoritative for the flat.
Tier tier_of(const detail::Runtime& runtime, const Flat& flat) {
  return flat.requires_grad ? runtime.plan.request.offload.optimizer : flat.parameters_rest;
}

/// This rank's part of that: all of it for a frozen flat that rests whole.
std::byte* authority(const Flat& flat, const detail::FlatMemory& memory) {
  if (flat.requires_grad) return memory.master;
  return flat.rests_whole ? memory.resting_whole : memory.compute;
}

/// Pieces to write so that the parameter's authoritative memory on this rank is complete: the
/// fragment of the own slice, or all of it for a frozen parameter that is always whole.
std::vector<Piece> pieces_to_write(detail::Runtime& runtime, int parameter) {
  const auto at = static_cast<std::size_t>(parameter);
  const int index = runtime.plan.flat_of_parameter[at];
  const int slot = runtime.plan.slot_of_parameter[at];
  const Flat& flat = runtime.flat(index);
  runtime.bring_and_wait(index, true);
  const detail::FlatMemory& memory = runtime.memory(index);
  std::byte* own = authority(flat, memory);
  const Tier tier = tier_of(runtime, flat);
  if (is_whole(flat)) {
    const Range range = flat.layout.range(slot);
    return {{0, range.count(), own + range.begin * size_of(flat.compute), flat.compute, tier}};
  }
  std::vector<Piece> pieces;
  for (const Fragment& fragment : fragments(flat.layout, flat.partition, runtime.shard.rank()))
    if (fragment.parameter == slot)
      pieces.push_back({fragment.parameter_offset, fragment.count,
                        own + fragment.slice_offset * size_of(flat.master), flat.master, tier});
  return pieces;
}

}  // namespace

void Engine::Parts::refresh() {
  gatherer.expect_released();
  stale = false;
  if (runtime.offloads()) runtime.join();
  constexpr std::array read{NvmePart::Optimizer};
  detail::UnitsAhead masters(runtime, read, nullptr);
  for (int unit = 0; unit < static_cast<int>(runtime.plan.units.size()); ++unit) {
    masters.await(unit);
    gatherer.delivery().begin(unit);
    for (int index : runtime.unit(unit).flats)
      if (runtime.flat(index).requires_grad) refresh_flat(index);
    gatherer.publish(unit);
    masters.leave(unit);
  }
  gatherer.invalidate();
}

void Engine::Parts::refresh_flat(int index) {
  const Flat& flat = runtime.flat(index);
  const detail::Lane lane = runtime.step_lane();
  detail::Delivery& delivery = gatherer.delivery();
  const Elements slice = flat.partition.slice();
  const Elements part = flat.staged_in_parts ? runtime.plan.update_part : slice;
  for (Elements from = 0; from < slice; from += part) {
    const Elements count = std::min(part, slice - from);
    if (std::byte* staged = delivery.open_part(index, from))
      lane.kernels.cast(runtime.memory(index).master + from * size_of(flat.master), flat.master,
                        staged, flat.compute, count, lane.stream);
    delivery.send_part(index, from, count);
  }
  delivery.mark(index);
}

void Engine::initialize(const Initializer& initializer) {
  for (int parameter = 0; parameter < static_cast<int>(model().parameters().size()); ++parameter)
    initialize(parameter, initializer);
}

void Engine::initialize(int parameter, const Initializer& initializer) {
  (void)parameter_spec(parameter);  // is there
  Parts& parts = *parts_;
  parts.prepare_writes("initialize()");
  for (const Piece& piece : pieces_to_write(parts.runtime, parameter)) {
    const detail::Lane lane = parts.runtime.lane(piece.tier);
    lane.kernels.fill(initializer, piece.dtype, piece.data,
                      parts.runtime.plan.canonical.start(parameter) + piece.parameter_offset,
                      piece.count, lane.stream);
    if (piece.tier == Tier::Nvme) lane.stream.synchronize();  // the disk may write the buffer next
  }
  parts.stale = true;
}

/// Stores `count` elements of the user's, wherever they lie, in memory of `tier` as `piece.dtype`;
/// blocks the host. Where another dtype comes from the host it is staged in blocks.
void Engine::Parts::take(const void* source, DType dtype, void* destination, DType to,
                         Elements count, Tier tier) {
  constexpr Elements block = Elements{1} << 22;
  detail::Runtime& at = runtime;
  if (at.device.kind() == DeviceKind::Host) {
    const detail::Lane lane = at.lane(tier);
    lane.kernels.cast(source, dtype, destination, to, count, lane.stream);
  } else if (dtype == to) {
    at.device.copy(source, destination, count * size_of(to), at.reduce);
  } else {
    const Buffer staged(at.memory_resource, std::min(count, block) * size_of(dtype));
    for (Elements done = 0; done < count; done += block) {
      const Elements part = std::min(block, count - done);
      at.device.copy(static_cast<const std::byte*>(source) + done * size_of(dtype), staged.data(),
                     part * size_of(dtype), at.reduce);
      at.kernels.cast(staged.data(), dtype,
                      static_cast<std::byte*>(destination) + done * size_of(to), to, part,
                      at.reduce);
    }
    at.reduce.synchronize();
  }
}

void Engine::assign(int parameter, const void* source, DType dtype) {
  FLATSHARD_EXPECTS(is_floating(dtype),
                    fmt::format("assign: parameter '{}' cannot be had from {}, which is not a "
                                "floating dtype",
                                parameter_spec(parameter).name, name_of(dtype)));
  (void)parameter_spec(parameter);  // is there
  Parts& parts = *parts_;
  parts.prepare_writes("assign()");
  for (const Piece& piece : pieces_to_write(parts.runtime, parameter))
    parts.take(static_cast<const std::byte*>(source) + piece.parameter_offset * size_of(dtype),
               dtype, piece.data, piece.dtype, piece.count, piece.tier);
  parts.runtime.reduce.synchronize();
  parts.runtime.host.synchronize();
  parts.stale = true;
}

void Engine::assign_from(Rank root, int parameter, const void* source, DType dtype) {
  const ParameterSpec& spec = parameter_spec(parameter);
  detail::Runtime& runtime = parts_->runtime;
  const Elements count = spec.numel();
  const Buffer whole(runtime.memory_resource, count * size_of(dtype));
  try {
    if (runtime.world.rank() == root)
      runtime.device.copy(source, whole.data(), count * size_of(dtype), runtime.reduce);
    runtime.world.broadcast(spec.name, whole.data(), count, dtype, root, runtime.reduce);
    assign(parameter, whole.data(), dtype);
  } catch (...) {
    // The broadcast writes into the buffer; and a device frees it only after its collectives, of
    // which this notices that they never end.
    runtime.drain();
    throw;
  }
}

LocalShard Engine::local(int parameter) const {
  const std::string& name = parameter_spec(parameter).name;
  const detail::Runtime& runtime = parts_->runtime;
  const auto at = static_cast<std::size_t>(parameter);
  const int index = runtime.plan.flat_of_parameter[at];
  const int slot = runtime.plan.slot_of_parameter[at];
  const Flat& flat = runtime.flat(index);
  FLATSHARD_EXPECTS(tier_of(runtime, flat) != Tier::Nvme,
                    fmt::format("local(): parameter '{}' rests on NVMe, where it has no address: "
                                "summon_full() and checkpoints read it",
                                name));
  const detail::FlatMemory& memory = runtime.memory(index);
  LocalShard local;
  for (const Fragment& part : fragments(flat.layout, flat.partition, runtime.shard.rank())) {
    if (part.parameter != slot) continue;
    local.offset = part.parameter_offset;
    local.count = part.count;
    std::byte* slice = flat.requires_grad ? memory.master : memory.compute;
    local.master = slice + part.slice_offset * size_of(flat.master);
    if (!flat.requires_grad) continue;
    local.gradient = memory.gradient_slice + part.slice_offset * size_of(flat.accumulate);
    local.gradient_dtype = flat.accumulate;
    for (std::byte* state : memory.states)
      local.states.push_back(state + part.slice_offset * size_of(flat.state));
  }
  return local;
}

bool Summoned::holds(int flat) const {
  return std::find(flats_.begin(), flats_.end(), flat) != flats_.end();
}

std::byte* Summoned::data(int parameter) const {
  const auto at = static_cast<std::size_t>(parameter);
  const int index = plan_->flat_of_parameter[at];
  const auto found = std::find(flats_.begin(), flats_.end(), index);
  if (found == flats_.end()) return nullptr;
  const Flat& flat = plan_->flats[static_cast<std::size_t>(index)];
  const Buffer& buffer = buffers_[static_cast<std::size_t>(found - flats_.begin())];
  return static_cast<std::byte*>(buffer.data()) +
         flat.layout.start(plan_->slot_of_parameter[at]) * size_of(flat.master);
}

/// Collectives take memory of the device.
void Engine::Parts::summon_flat(const Flat& flat, const std::byte* own, void* whole) {
  const Elements count = is_whole(flat) ? flat.partition.padded() : flat.partition.slice();
  const Bytes offset = is_whole(flat) ? 0 : runtime.shard.rank() * count * size_of(flat.master);
  if (tier_of(runtime, flat) != Tier::Device) {
    std::byte* part = static_cast<std::byte*>(whole) + offset;
    runtime.device.copy(own, part, count * size_of(flat.master), runtime.reduce);
    own = part;
  } else if (is_whole(flat)) {
    runtime.kernels.cast(own, flat.master, whole, flat.master, count, runtime.reduce);
  }
  if (!is_whole(flat))
    runtime.shard.all_gather(flat.label, own, whole, count, flat.master, runtime.reduce);
}

Summoned Engine::summon(int module) {
  Parts& parts = *parts_;
  parts.prepare();
  parts.update_late_units();
  parts.gatherer.order_before_writes();  // masters may lie in what a step still publishes
  detail::Runtime& runtime = parts.runtime;
  if (runtime.offloads()) runtime.join();
  Summoned summoned;
  summoned.plan_ = &runtime.plan;
  const auto take = [&](int index) {
    const Flat& flat = runtime.flat(index);
    summoned.flats_.push_back(index);
    summoned.buffers_.emplace_back(runtime.memory_resource,
                                   flat.partition.padded() * size_of(flat.master));
    if (flat.is_empty()) return;
    runtime.bring_and_wait(index, false);
    parts.summon_flat(flat, authority(flat, runtime.memory(index)),
                      summoned.buffers_.back().data());
  };
  try {
    for (int unit : parts.touched(module))
      for (int index : runtime.unit(unit).flats) take(index);
    runtime.reduce.synchronize();
  } catch (...) {
    detail::Runtime::settle(runtime.reduce);  // what was enqueued writes into the buffers
    throw;
  }
  return summoned;
}

void Engine::write_back(const Summoned& summoned) {
  Parts& parts = *parts_;
  parts.prepare_writes("write_back()");
  detail::Runtime& runtime = parts.runtime;
  for (std::size_t at = 0; at < summoned.flats_.size(); ++at) {
    const int index = summoned.flats_[at];
    const Flat& flat = runtime.flat(index);
    if (flat.is_empty()) continue;
    runtime.bring_and_wait(index, true);
    const detail::FlatMemory& memory = runtime.memory(index);
    const bool all = is_whole(flat);
    const Elements count = all ? flat.partition.padded() : flat.partition.slice();
    const Bytes own = all ? 0 : runtime.shard.rank() * count * size_of(flat.master);
    const auto* source = static_cast<const std::byte*>(summoned.buffers_[at].data()) + own;
    std::byte* target = authority(flat, memory);
    if (tier_of(runtime, flat) != Tier::Device)
      runtime.device.copy(source, target, count * size_of(flat.master), runtime.reduce);
    else
      runtime.kernels.cast(source, flat.master, target, flat.master, count, runtime.reduce);
  }
  runtime.reduce.synchronize();
  parts.stale = true;
}

}  // namespace flatshard
