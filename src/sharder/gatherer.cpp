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
      read_(runtime.make_event()),
      uploaded_(runtime.make_event()),
      downloaded_(runtime.make_event()),
      brought_(runtime.make_event()) {
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
  if (--held.holds > 0) return;
  if (held.outdated) order_after_reads();
  if (held.outdated || held.slot >= 0) drop(unit);
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
  gathering.brought = false;
  for (int flat : plan.flats) gather_flat(flat, gathering);
  if (gathering.brought) runtime_.parameter_slots->used_by(unit, runtime_.upload);
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
  if (flat.parameters_rest != Tier::Device) {
    lift(index, unit_state, destination);
    if (flat.rests_whole) return;
    own = own_part(flat, destination);
  }
  runtime_.shard.all_gather(flat.label, own, destination, flat.partition.slice(), flat.compute,
                            runtime_.gather);
  if (memory.secondary != nullptr) keep_secondary(flat, memory, destination);
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
  dropped.present = dropped.outdated = false;
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

void Gatherer::outdate(int unit) {
  State& updated = state(unit);
  updated.secondary = false;
  updated.outdated = updated.present && updated.holds > 0;
  if (updated.present && !updated.outdated) drop(unit);
}

/// What is gathered next may go where the compute stream still reads.
void Gatherer::order_after_reads() {
  runtime_.order(runtime_.compute, *read_, runtime_.gather);
  if (runtime_.offloads()) runtime_.upload.wait(*read_);
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
