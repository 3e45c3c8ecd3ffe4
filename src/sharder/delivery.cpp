#include "delivery.hpp"

#include <algorithm>

#include "plan_build.hpp"

namespace flatshard::detail {

Delivery::Delivery(Runtime& runtime)
    : runtime_(runtime),
      lane_(runtime.step_lane().stream),
      transfer_(steps_on_host(runtime.plan) ? runtime.upload : runtime.download),
      units_(runtime.plan.units.size()),
      marked_(runtime.plan.flats.size(), false),
      opened_(runtime.make_event()),
      copied_(runtime.make_event()) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].stepped = runtime.make_event();
    units_[unit].delivered = runtime.make_event();
    for (int flat : runtime.plan.units[unit].flats)
      units_[unit].moves = units_[unit].moves || moves(runtime.flat(flat), runtime.plan);
  }
  for (int slot = 0; slot < runtime.plan.staging_slots; ++slot)
    slots_.push_back(
        {runtime.address(Role::Staging, staging_parameters, slot), runtime.make_event()});
  for (int slot = 0; slot < runtime.plan.upload_slots; ++slot)
    parts_.push_back({runtime.address(Role::Staging, staging_uploads, slot), runtime.make_event(),
                      runtime.make_event()});
}

Stream& Delivery::stream(int unit) const {
  return units_[static_cast<std::size_t>(unit)].moves ? transfer_ : lane_;
}

void Delivery::begin(int unit, const StepScalars* decision) {
  if (!runtime_.offloads()) return;
  decision_ = decision;
  lane_.wait(delivered(unit));  // which copied from the masters
  if (runtime_.unit(unit).staging_bytes == 0) return;
  slot_ = next_slot_;
  next_slot_ = (next_slot_ + 1) % runtime_.plan.staging_slots;
  lane_.wait(*slot().free);
}

std::byte* Delivery::open_part(int index, Elements from) {
  const Flat& flat = runtime_.flat(index);
  if (flat.staged_in_parts) {
    lane_.wait(*parts_[next_part_].free);
    return parts_[next_part_].data;
  }
  std::byte* whole = slice(index);
  return whole == nullptr ? nullptr : whole + from * size_of(flat.compute);
}

void Delivery::send_part(int index, Elements from, Elements count) {
  const Flat& flat = runtime_.flat(index);
  if (!flat.staged_in_parts) return;
  const Bytes size = size_of(flat.compute);
  const PartSlot& part = parts_[next_part_];
  next_part_ = (next_part_ + 1) % parts_.size();
  runtime_.order(lane_, *part.made, transfer_);
  runtime_.device.copy(part.data, runtime_.memory(index).compute + from * size, count * size,
                       transfer_);
  transfer_.record(*part.free);
}

/// Where the slice is made, or copied from; null: the master serves.
std::byte* Delivery::slice(int index) const {
  const Flat& flat = runtime_.flat(index);
  if (flat.master_is_compute) return nullptr;
  if (!moves(flat, runtime_.plan)) return runtime_.memory(index).compute;
  if (!flat.step_row.writes_copy || flat.is_empty()) return nullptr;
  return slots_[static_cast<std::size_t>(slot_)].data + flat.staging_offset;
}

void Delivery::deliver(int unit) {
  const Unit& delivering = units_[static_cast<std::size_t>(unit)];
  if (delivering.moves) runtime_.order(lane_, *delivering.stepped, transfer_);
  const bool to_nvme = open_slots(unit);
  for (int flat : runtime_.unit(unit).flats)
    if (marked_[static_cast<std::size_t>(flat)]) copy(flat);
  if (to_nvme) close_slots(unit);
  for (int flat : runtime_.unit(unit).flats) marked_[static_cast<std::size_t>(flat)] = false;
  if (delivering.moves && runtime_.optimizer_slots)
    runtime_.optimizer_slots->used_by(unit, transfer_);
  if (runtime_.unit(unit).staging_bytes > 0) transfer_.record(*slot().free);
  stream(unit).record(*delivering.delivered);
}

bool Delivery::goes_to_nvme(int index) const {
  return marked_[static_cast<std::size_t>(index)] &&
         runtime_.flat(index).parameters_rest == Tier::Nvme && !runtime_.flat(index).is_empty();
}

/// What goes to NVMe is copied into a buffer first; false: nothing does.
bool Delivery::open_slots(int unit) {
  const std::vector<int>& flats = runtime_.unit(unit).flats;
  if (std::none_of(flats.begin(), flats.end(), [&](int flat) { return goes_to_nvme(flat); }))
    return false;
  runtime_.parameter_slots->begin(unit);
  runtime_.order(runtime_.disk, *opened_, transfer_);
  return true;
}

void Delivery::close_slots(int unit) {
  runtime_.order(transfer_, *copied_, runtime_.disk);
  for (int flat : runtime_.unit(unit).flats)
    if (goes_to_nvme(flat)) runtime_.parameter_slots->write(NvmePart::Parameters, flat, decision_);
}

void Delivery::copy(int index) {
  const Flat& flat = runtime_.flat(index);
  if (!moves(flat, runtime_.plan) || flat.is_empty() || flat.staged_in_parts) return;
  const FlatMemory& memory = runtime_.memory(index);
  const std::byte* staged = slice(index);
  runtime_.device.copy(staged == nullptr ? memory.master : staged, memory.compute,
                       flat.partition.slice() * size_of(flat.compute), transfer_);
}

}  // namespace flatshard::detail
