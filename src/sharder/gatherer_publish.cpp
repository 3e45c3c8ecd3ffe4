// What leaves and reaches the place where parameters rest: publication after a step, lifts from the
// host.
#include "gatherer.hpp"
#include "plan_build.hpp"

namespace flatshard::detail {

/// From NVMe to the host.
void Gatherer::bring(int index, State& unit_state) {
  NvmeRing& slots = *runtime_.parameter_slots;
  if (!unit_state.brought) slots.begin(runtime_.flat(index).unit);
  unit_state.brought = true;
  slots.read(NvmePart::Parameters, index);
  slots.await(NvmePart::Parameters, index);
  runtime_.order(runtime_.disk, *brought_, runtime_.upload);
}

/// Copies what rests on the host or on NVMe, the slice or all of it, to its place in `whole`.
void Gatherer::lift(int index, State& unit_state, std::byte* whole) {
  const Flat& flat = runtime_.flat(index);
  const FlatMemory& memory = runtime_.memory(index);
  Stream& upload = runtime_.upload;
  if (flat.parameters_rest == Tier::Nvme) bring(index, unit_state);
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
  const bool on_host = steps_on_host(runtime_.plan);
  runtime_.order(runtime_.gather, *gathered_, on_host ? runtime_.upload : runtime_.reduce);
  if (!on_host || tiers.parameters != Tier::Host) return;
  runtime_.order(runtime_.upload, *uploaded_, runtime_.host);
  runtime_.order(runtime_.download, *downloaded_, runtime_.host);
}

}  // namespace flatshard::detail
