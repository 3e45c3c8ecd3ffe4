#include "reducer.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <bit>

#include "plan_build.hpp"

namespace flatshard::detail {

Reducer::Reducer(Runtime& runtime, GradientNorm& norm, GradientRelay& relay)
    : runtime_(runtime),
      norm_(norm),
      relay_(relay),
      states_(runtime.plan.units.size()),
      dedicated_slot_(runtime.plan.units.size(), -1),
      stepped_(runtime.make_event()),
      sums_(runtime.lane(sums_on_host(runtime.plan) ? Tier::Host : Tier::Device)),
      fetched_(runtime.make_event()),
      host_stepped_(runtime.make_event()),
      brought_(runtime.make_event()),
      landing_(runtime.address(Role::Scratch, 0)),
      wide_(runtime.address(Role::Scratch, 1)) {
  for (State& unit : states_) {
    unit.written = runtime.make_event();
    unit.summed = runtime.make_event();
  }
  for (int slot = 0; sums_on_host(runtime.plan) && slot < runtime.plan.landing_slots; ++slot)
    landings_.push_back({runtime.address(Role::Scratch, 0, slot),
                         runtime.address(Role::Staging, staging_gradients, slot),
                         runtime.make_event(), runtime.make_event(), runtime.make_event()});
  for (int slot = 0; slot < runtime.plan.gradient_slots; ++slot)
    slots_.push_back({-1, runtime.address(Role::GradientRing, slot), runtime.make_event()});
  for (int unit = 0; unit < static_cast<int>(states_.size()); ++unit) {
    if (!runtime.unit(unit).dedicated) continue;
    dedicated_slot_[static_cast<std::size_t>(unit)] = static_cast<int>(slots_.size());
    slots_.push_back({-1, runtime.address(Role::GradientUnit, unit), runtime.make_event()});
  }
}

int Reducer::slot_for(int unit) const {
  if (runtime_.unit(unit).dedicated) return dedicated_slot_[static_cast<std::size_t>(unit)];
  for (int slot = 0; slot < runtime_.plan.gradient_slots; ++slot)
    if (slots_[static_cast<std::size_t>(slot)].unit < 0) return slot;
  throw UsageError(
      fmt::format("no buffer is free for the gradients of unit '{}': {} units have open gradients "
                  "at once. Wrap "
                  "modules whose backward calls interleave into one unit",
                  runtime_.unit(unit).name, runtime_.plan.gradient_slots));
}

void Reducer::open(int unit, bool zero_all) {
  State& opened = state(unit);
  if (runtime_.unit(unit).gradient_bytes > 0) {
    opened.slot = slot_for(unit);
    slot_of(unit).unit = unit;
    runtime_.compute.wait(*slot_of(unit).free);
  }
  opened.open = true;
  runtime_.compute.wait(*stepped_);
  for (int flat : runtime_.unit(unit).flats)
    if (runtime_.flat(flat).requires_grad) zero(flat, zero_all);
}

void Reducer::zero(int index, bool zero_all) {
  const Flat& flat = runtime_.flat(index);
  if (flat.is_empty()) return;
  std::byte* written = gradient(index);
  if (runtime_.unit(flat.unit).backward_overwrites && !zero_all) return zero_gaps(flat, written);
  runtime_.kernels.zero(written, flat.partition.padded() * size_of(flat.compute), runtime_.compute);
}

/// Zeroes what lies between parameters and after the last.
void Reducer::zero_gaps(const Flat& flat, std::byte* written) {
  const Bytes size = size_of(flat.compute);
  for (int parameter = 0; parameter < flat.layout.parameters(); ++parameter) {
    const Elements begin = flat.layout.range(parameter).end;
    const bool last = parameter + 1 == flat.layout.parameters();
    const Elements end = last ? flat.partition.padded() : flat.layout.start(parameter + 1);
    if (end > begin)
      runtime_.kernels.zero(written + begin * size, (end - begin) * size, runtime_.compute);
  }
}

std::byte* Reducer::gradient(int index) const {
  const Flat& flat = runtime_.flat(index);
  const State& unit = state(flat.unit);
  if (!unit.open || !flat.requires_grad) return nullptr;
  if (flat.is_empty()) return runtime_.nothing();
  if (flat.gradient_in_place) return runtime_.memory(index).gradient;
  return slots_[static_cast<std::size_t>(unit.slot)].data + flat.gradient_offset;
}

void Reducer::close(int unit, int index, bool last, bool at_once) {
  runtime_.order(runtime_.compute, *state(unit).written, runtime_.reduce);
  for (int flat : runtime_.unit(unit).flats)
    if (runtime_.flat(flat).requires_grad) reduce_flat(flat, index, last, at_once);
  finish(unit);
}

void Reducer::discard(int unit) {
  if (!state(unit).open) return;
  runtime_.order(runtime_.compute, *state(unit).written, runtime_.reduce);
  finish(unit);
}

void Reducer::finish(int unit) {
  if (state(unit).slot >= 0) {
    Slot& slot = slot_of(unit);
    slot.unit = -1;
    runtime_.reduce.record(*slot.free);
  }
  state(unit).slot = -1;
  state(unit).open = false;
}

void Reducer::stepped() {
  if (steps_on_host(runtime_.plan) && !sums_on_host(runtime_.plan))
    runtime_.order(runtime_.download, *fetched_, runtime_.reduce);  // which it has copied from
  if (steps_on_host(runtime_.plan))
    runtime_.order(runtime_.host, *host_stepped_, runtime_.download);
  runtime_.reduce.record(*stepped_);
}

void Reducer::reduce_flat(int index, int micro_step, bool last, bool at_once) {
  const Flat& flat = runtime_.flat(index);
  if (flat.is_empty()) return;
  const FlatMemory& memory = runtime_.memory(index);
  const std::byte* written = gradient(index);
  const bool tree = runtime_.plan.accumulation == Accumulation::Tree;
  const bool replace = micro_step == 0 || tree;
  switch (runtime_.plan.moment) {
    case ReduceMoment::Micro:
      if (sums_on_host(runtime_.plan))
        reduce_to_host(index, written, replace, last, at_once && micro_step == 0);
      else
        reduce_slice(flat, memory, written, flat.compute, flat.reduce, true, replace);
      if (relay_.holds(index)) return;  // nothing is summed, nor is it on the host yet
      add_partials(flat, memory, flat.partition.slice(), micro_step, last);
      if (sums_on_host(runtime_.plan)) finish_on_host(index, last);
      return;
    case ReduceMoment::Boundary:
      keep_whole(flat, memory, written, micro_step, last);
      if (!last) return;
      reduce_slice(flat, memory, memory.gradient, flat.accumulate, flat.reduce, true, true);
      return fetch_slice(index);
    case ReduceMoment::ReplicaBoundary:
      reduce_slice(flat, memory, written, flat.compute, wide_of(flat.compute), false, replace);
      add_partials(flat, memory, flat.partition.slice(), micro_step, last);
      if (!last) return;
      reduce_replicas(flat, memory);
      return fetch_slice(index);
  }
}

/// Adds this rank's whole gradient to the whole gradient of earlier micro-steps.
void Reducer::keep_whole(const Flat& flat, const FlatMemory& memory, const std::byte* written,
                         int micro_step, bool last) {
  if (flat.gradient_in_place) return;
  const Elements count = flat.partition.padded();
  if (micro_step == 0 || runtime_.plan.accumulation == Accumulation::Tree)
    runtime_.kernels.cast(written, flat.compute, memory.gradient, flat.accumulate, count,
                          runtime_.reduce);
  else
    runtime_.kernels.add(written, flat.compute, memory.gradient, flat.accumulate, count,
                         runtime_.reduce);
  add_partials(flat, memory, count, micro_step, last);
}

/// Reduces `source` and stores it as, or adds it to, the accumulated slice.
void Reducer::reduce_slice(const Flat& flat, const FlatMemory& memory, const std::byte* source,
                           DType contribution, DType result, bool over_replicas, bool replace) {
  const bool direct = replace && result == flat.accumulate;
  std::byte* target = direct ? memory.sum_slice : landing_;
  reduce_over_ranks(flat, source, target, contribution, result, over_replicas);
  if (direct) return;
  const Elements count = flat.partition.slice();
  if (replace)
    runtime_.kernels.cast(target, result, memory.sum_slice, flat.accumulate, count,
                          runtime_.reduce);
  else
    runtime_.kernels.add(target, result, memory.sum_slice, flat.accumulate, count, runtime_.reduce);
}

/// Inner group first, then replicas; the partial sum between them is kept wide.
void Reducer::reduce_over_ranks(const Flat& flat, const std::byte* source, std::byte* target,
                                DType contribution, DType result, bool over_replicas) {
  const Elements count = flat.partition.slice();
  const bool replicas = over_replicas && runtime_.plan.replicas > 1;
  if (runtime_.plan.shard_group == 1 && replicas) {
    runtime_.replicas.all_reduce(flat.label, source, target, count, contribution, result,
                                 runtime_.reduce);
    return;
  }
  const DType wide = wide_of(contribution);
  std::byte* partial = replicas && result != wide ? wide_ : target;
  runtime_.shard.reduce_scatter(flat.label, source, partial, count, contribution,
                                replicas ? wide : result, runtime_.reduce);
  if (replicas)
    runtime_.replicas.all_reduce(flat.label, partial, target, count, wide, result, runtime_.reduce);
}

/// The last micro-step of ReplicaBoundary: sums the accumulated slice over the replicas.
void Reducer::reduce_replicas(const Flat& flat, const FlatMemory& memory) {
  if (runtime_.plan.replicas == 1 && flat.reduce == flat.accumulate) return;
  const Elements count = flat.partition.slice();
  const bool direct = flat.reduce == flat.accumulate;
  std::byte* target = direct ? memory.sum_slice : landing_;
  runtime_.replicas.all_reduce(flat.label, memory.sum_slice, target, count, flat.accumulate,
                               flat.reduce, runtime_.reduce);
  if (!direct)
    runtime_.kernels.cast(target, flat.reduce, memory.sum_slice, flat.accumulate, count,
                          runtime_.reduce);
}

/// The binary counter of tree accumulation. One partial sum waits for each bit of `index`, the
/// largest at the bottom of a stack. The sum that just landed in the accumulated gradient takes up
/// one from the top for each of the lowest bits that are ones (all of them at the last micro-step),
/// then waits on top.
void Reducer::add_partials(const Flat& flat, const FlatMemory& memory, Elements count, int index,
                           bool last) {
  if (runtime_.plan.accumulation != Accumulation::Tree) return;
  std::byte* sum =
      runtime_.plan.moment == ReduceMoment::Boundary ? memory.gradient : memory.sum_slice;
  const auto bits = static_cast<unsigned>(index);
  auto waiting = static_cast<std::size_t>(std::popcount(bits));
  const std::size_t kept = last ? 0 : waiting - static_cast<std::size_t>(std::countr_one(bits));
  while (waiting > kept)
    sums_.kernels.add(memory.partials[--waiting], flat.accumulate, sum, flat.accumulate, count,
                      sums_.stream);
  if (!last)
    sums_.kernels.cast(sum, flat.accumulate, memory.partials[waiting], flat.accumulate, count,
                       sums_.stream);
}

}  // namespace flatshard::detail
