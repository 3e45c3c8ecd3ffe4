// What passes between the host and the device in parts, and through which buffers.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "plan_bytes.hpp"

namespace flatshard::detail {

namespace {

constexpr int parts_in_flight = 4;  // one is worked on, others are on their way

/// The relay holds one flat, and the landing where that waits is not free for another.
bool trains_alone(const Flat& flat, const Plan& plan) {
  const std::vector<int>& flats = at(plan.units, flat.unit).flats;
  return std::count_if(flats.begin(), flats.end(), [&](int other) {
           return at(plan.flats, other).requires_grad && !at(plan.flats, other).is_empty();
         }) == 1;
}

/// New parameters that are rounded on the host and rest on the device.
bool goes_up_in_parts(const Flat& flat, const Plan& plan) {
  return stages(flat, plan) && flat.parameters_rest == Tier::Device;
}

/// A gradient that is stepped with as it was reduced, as soon as that was.
bool comes_down_in_parts(const Flat& flat, const Plan& plan, const Options& options) {
  return options.step_in_backward && sums_on_host(plan) && flat.requires_grad &&
         flat.reduce == flat.accumulate && trains_alone(flat, plan);
}

void add_buffers(int& slots, Bytes& slot_bytes, Elements part, DType dtype) {
  slots = parts_in_flight;
  slot_bytes = std::max(slot_bytes, bytes_of(part, dtype));
}

}  // namespace

void plan_parts(Plan& plan, const Options& options) {
  const Elements part = options.update_part;
  FLATSHARD_EXPECTS(part >= 0, fmt::format("update_part is {}, not a count", part));
  if (plan.request.offload.optimizer != Tier::Host || part == 0) return;
  for (Flat& flat : plan.flats) {
    if (flat.partition.slice() <= part) continue;
    flat.staged_in_parts = goes_up_in_parts(flat, plan);
    flat.relayed = comes_down_in_parts(flat, plan, options);
    if (flat.staged_in_parts)
      add_buffers(plan.upload_slots, plan.upload_slot_bytes, part, flat.compute);
    if (flat.relayed) add_buffers(plan.relay_slots, plan.relay_slot_bytes, part, flat.reduce);
    if (flat.staged_in_parts || flat.relayed) plan.update_part = part;
  }
}

}  // namespace flatshard::detail
