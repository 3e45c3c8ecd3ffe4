#include "gatherer.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

namespace flatshard::detail {

Gatherer::Gatherer(Runtime& runtime, Elements max_live)
    : runtime_(runtime),
      delivery_(runtime),
      max_live_(max_live),
      states_(runtime.plan.units.size()),
      slots_(static_cast<std::size_t>(runtime.plan.gather_slots)),
      gathered_(runtime.make_event()),
      changed_(runtime.make_event()),
      uploaded_(runtime.make_event()),
      downloaded_(runtime.make_event()) {
  for (State& unit : states_) {
    unit.ready = runtime.make_event();
    unit.published = runtime.make_event();
    unit.stepped = runtime.make_event();
    unit.lifted = runtime.make_event();
    unit.lowered = runtime.make_event();
  }
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    slots_[slot].data = runtime.address(Role::GatherRing, static_cast<int>(slot));
    slots_[slot].free = runtime.make_event();
    slots_[slot].filled = runtime.make_event();
    slots_[slot].lowered = runtime.make_event();
  }
}

bool Gatherer::is_absent(int unit) const { return gathers(unit) && !state(unit).present; }

void Gatherer::hold(int unit) {
  State& held = state(unit);
  if (is_absent(unit)) gather(unit);
  if (held.prefetched) {
    held.prefetched = false;
    --outstanding_;
  }
  ++held.holds;
  runtime_.compute.wait(*held.published);
  runtime_.compute.wait(*held.ready);
}

void Gatherer::release(int unit) {
  State& held = state(unit);
  if (--held.holds == 0 && held.slot >= 0) drop(unit);
}

void Gatherer::prefetch(int unit) {
  if (!is_absent(unit)) return;
  if (live_ > max_live_ - runtime_.unit(unit).gathered_elements) return;
  if (runtime_.unit(unit).ring_bytes > 0 && free_slot() < 0) return;
  gather(unit);
  state(unit).prefetched = true;
  ++outstanding_;
}

void Gatherer::gather(int unit) {
  const UnitPlan& plan = runtime_.unit(unit);
  State& gathering = state(unit);
  while (live_ > max_live_ - plan.gathered_elements && evict_prefetched(false)) continue;
  FLATSHARD_EXPECTS(live_ <= max_live_ - plan.gathered_elements,
                    fmt::format("gathering unit '{}' ({} elements) beside {} live ones exceeds "
                                "max_live_elements {}",
                                plan.name, plan.gathered_elements, live_, max_live_));
  if (plan.ring_bytes > 0) gathering.slot = take_slot(unit);
  if (runtime_.offloads()) runtime_.gather.wait(delivery_.delivered(unit));
  for (int flat : plan.flats) gather_flat(flat, gathering);
  gathering.secondary = runtime_.plan.request.strategy.secondary_shard;
  gathering.present = true;
  runtime_.gather.record(*gathering.ready);
  if (gathering.slot >= 0)
    runtime_.gather.record(*slots_[static_cast<std::size_t>(gathering.slot)].filled);
  live_ += plan.gathered_elements;
  peak_live_ = std::max(peak_live_, live_);
}

void Gatherer::gather_flat(int index, State& unit_state) {
  const Flat& flat = runtime_.flat(index);
  if (flat.whole == ParametersWhole::Always || flat.is_empty()) return;
  const FlatMemory& memory = runtime_.memory(index);
  std::byte* destination = memory.whole;
  if (destination == nullptr)
    destination = slots_[static_cast<std::size_t>(unit_state.slot)].data + flat.gather_offset;
  if (unit_state.secondary && memory.secondary != nullptr)
    return gather_from_secondary(flat, memory, destination);
  const std::byte* own = memory.compute;
  if (flat.parameters_rest == Tier::Host) {
    lift(flat, memory, unit_state, destination);
    if (flat.rests_whole) return;
    own = own_part(flat, destination);
  }
  runtime_.shard.all_gather(flat.label, own, destination, flat.partition.slice(), flat.compute,
                            runtime_.gather);
  if (memory.secondary != nullptr) keep_secondary(flat, memory, destination);
}

/// Copies what rests on the host, the slice or all of it, to its place in `whole`.
void Gatherer::lift(const Flat& flat, const FlatMemory& memory, State& unit_state,
                    std::byte* whole) {
  Stream& upload = runtime_.upload;
  upload.wait(*unit_state.published);
  upload.wait(*unit_state.ready);
  const Elements count = flat.rests_whole ? flat.partition.padded() : flat.partition.slice();
  runtime_.device.copy(flat.rests_whole ? memory.resting_whole : memory.compute,
                       flat.rests_whole ? whole : own_part(flat, whole),
                       count * size_of(flat.compute), upload);
  runtime_.order(upload, *unit_state.lifted, runtime_.gather);
}

std::byte* Gatherer::own_part(const Flat& flat, std::byte* whole) const {
  return whole + runtime_.shard.rank() * flat.partition.slice() * size_of(flat.compute);
}

void Gatherer::gather_from_secondary(const Flat& flat, const FlatMemory& memory, std::byte* whole) {
  runtime_.secondary.all_gather(flat.label, memory.secondary, whole,
                                flat.partition.padded() / runtime_.plan.secondary_group,
                                flat.compute, runtime_.gather);
}

void Gatherer::keep_secondary(const Flat& flat, const FlatMemory& memory, const std::byte* whole) {
  const Elements part = flat.partition.padded() / runtime_.plan.secondary_group;
  const Bytes offset = runtime_.secondary.rank() * part * size_of(flat.compute);
  runtime_.kernels.cast(whole + offset, flat.compute, memory.secondary, flat.compute, part,
                        runtime_.gather);
}

int Gatherer::free_slot() const {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].unit < 0) return static_cast<int>(slot);
  return -1;
}

int Gatherer::take_slot(int unit) {
  if (free_slot() < 0) evict_prefetched(true);
  const int slot = free_slot();
  FLATSHARD_EXPECTS(
      slot >= 0,
      fmt::format(
          "no buffer is free to gather unit '{}': {} units are in use at once. Wrap modules "
          "that are used together into one unit, or raise prefetch_forward",
          runtime_.unit(unit).name, slots_.size()));
  Slot& taken = slots_[static_cast<std::size_t>(slot)];
  taken.unit = unit;
  runtime_.gather.wait(*taken.free);
  if (runtime_.offloads())
    for (Event* event : {taken.free.get(), taken.filled.get(), taken.lowered.get()})
      runtime_.upload.wait(*event);
  return slot;
}

bool Gatherer::evict_prefetched(bool from_ring) {
  for (int unit = 0; unit < static_cast<int>(states_.size()); ++unit)
    if (state(unit).prefetched && state(unit).holds == 0 && (!from_ring || state(unit).slot >= 0)) {
      drop(unit);
      return true;
    }
  return false;
}

void Gatherer::drop(int unit) {
  State& dropped = state(unit);
  if (dropped.prefetched) --outstanding_;
  dropped.prefetched = false;
  dropped.present = false;
  live_ -= runtime_.unit(unit).gathered_elements;
  if (dropped.slot < 0) return;
  Slot& slot = slots_[static_cast<std::size_t>(dropped.slot)];
  slot.unit = -1;
  runtime_.compute.record(*slot.free);
  dropped.slot = -1;
}

void Gatherer::expect_released() const {
  for (int unit = 0; unit < static_cast<int>(states_.size()); ++unit)
    FLATSHARD_EXPECTS(
        state(unit).holds == 0,
        fmt::format("parameters cannot change while unit '{}' is held", runtime_.unit(unit).name));
}

void Gatherer::invalidate() {
  runtime_.order(runtime_.reduce, *changed_, runtime_.gather);
  for (int unit = 0; unit < static_cast<int>(states_.size()); ++unit) {
    if (state(unit).present) drop(unit);
    state(unit).secondary = false;
  }
}

/// Every rank of the group is to have all of the flat, which rests on `tier`.
bool Gatherer::is_published(int index, Tier tier) const {
  const Flat& flat = runtime_.flat(index);
  return flat.rests_whole && flat.requires_grad && flat.parameters_rest == tier &&
         !flat.is_empty() && runtime_.plan.shard_group > 1;
}

void Gatherer::publish(int unit, bool within_backward) {
  State& published = state(unit);
  const bool offloads = runtime_.offloads();
  if (offloads)
    delivery_.deliver(unit);
  else
    runtime_.order(runtime_.reduce, *published.stepped, runtime_.gather);
  Stream* last = offloads ? &delivery_.stream(unit) : &runtime_.gather;
  for (int index : runtime_.unit(unit).flats) {
    if (!is_published(index, Tier::Device)) continue;
    const Flat& flat = runtime_.flat(index);
    const FlatMemory& memory = runtime_.memory(index);
    if (offloads) runtime_.gather.wait(delivery_.delivered(unit));
    last = &runtime_.gather;
    runtime_.shard.all_gather(flat.label, memory.compute, memory.whole, flat.partition.slice(),
                              flat.compute, runtime_.gather);
  }
  last->record(*published.published);
  if (!within_backward) publish_on_host(unit);
}

/// Through buffers of the device that gathers fill in a step.
void Gatherer::publish_on_host(int unit) {
  bool any = false;
  for (int index : runtime_.unit(unit).flats) {
    if (!is_published(index, Tier::Host)) continue;
    if (!any) runtime_.gather.wait(*state(unit).published);
    any = true;
    publish_through_device(index);
  }
  if (any) runtime_.gather.record(*state(unit).published);
}

/// Own slice up, all slices together, all of it down. The upload stream comes after what gathers
/// and calls did to these buffers: lifts filled them, and order_before_writes() was called.
void Gatherer::publish_through_device(int index) {
  const Flat& flat = runtime_.flat(index);
  const FlatMemory& memory = runtime_.memory(index);
  State& publishing = state(flat.unit);
  std::byte* whole = memory.whole;
  Slot* slot = nullptr;
  if (whole == nullptr) {
    slot = &slots_[static_cast<std::size_t>(flat.unit) % slots_.size()];
    whole = slot->data + flat.gather_offset;
    runtime_.upload.wait(*slot->lowered);
  }
  const Elements slice = flat.partition.slice();
  runtime_.upload.wait(delivery_.delivered(flat.unit));
  runtime_.device.copy(memory.compute, own_part(flat, whole), slice * size_of(flat.compute),
                       runtime_.upload);
  runtime_.order(runtime_.upload, *publishing.lifted, runtime_.gather);
  runtime_.shard.all_gather(flat.label, own_part(flat, whole), whole, slice, flat.compute,
                            runtime_.gather);
  runtime_.order(runtime_.gather, *publishing.stepped, runtime_.download);
  runtime_.device.copy(whole, memory.resting_whole, flat.partition.padded() * size_of(flat.compute),
                       runtime_.download);
  runtime_.order(runtime_.download, *publishing.lowered, runtime_.gather);
  if (slot != nullptr) runtime_.download.record(*slot->lowered);
}

/// Gathers read slices on the device, and end after what they were lifted from the host by. A host
/// step writes what lifts read and publications wrote.
void Gatherer::order_before_writes() {
  const OffloadTraits& tiers = runtime_.plan.request.offload;
  const bool on_host = tiers.optimizer == Tier::Host;
  runtime_.order(runtime_.gather, *gathered_, on_host ? runtime_.upload : runtime_.reduce);
  if (!on_host || tiers.parameters != Tier::Host) return;
  runtime_.order(runtime_.upload, *uploaded_, runtime_.host);
  runtime_.order(runtime_.download, *downloaded_, runtime_.host);
}

std::byte* Gatherer::whole(int index) const {
  const Flat& flat = runtime_.flat(index);
  const FlatMemory& memory = runtime_.memory(index);
  const State& unit = state(flat.unit);
  if (flat.whole != ParametersWhole::Always && is_absent(flat.unit)) return nullptr;
  if (flat.is_empty()) return runtime_.nothing();
  if (memory.whole != nullptr) return memory.whole;
  return slots_[static_cast<std::size_t>(unit.slot)].data + flat.gather_offset;
}

}  // namespace flatshard::detail
