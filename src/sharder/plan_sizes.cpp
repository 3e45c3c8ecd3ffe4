#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "plan_bytes.hpp"

namespace flatshard::detail {

namespace {

/// Appends `bytes` to a unit's part of a ring slot; returns where they begin.
Bytes append(Bytes& part, Bytes bytes) {
  const Bytes begin = part;
  part = add_bytes(part, round_up_bytes(bytes));
  return begin;
}

/// Bytes of every unit's part in the rings; where each flat lies in them.
void size_units(Plan& plan) {
  for (Flat& flat : plan.flats) {
    UnitPlan& unit = at(plan.units, flat.unit);
    const Bytes bytes = whole_bytes(flat, flat.compute);
    if (flat.whole != ParametersWhole::Always) unit.gathered_elements += flat.partition.padded();
    if (flat.whole == ParametersWhole::PerUse) flat.gather_offset = append(unit.ring_bytes, bytes);
    if (flat.requires_grad && !flat.gradient_in_place)
      flat.gradient_offset = append(unit.gradient_bytes, bytes);
    if (stages(flat, plan) && !flat.staged_in_parts)
      flat.staging_offset = append(unit.staging_bytes, slice_bytes(flat, flat.compute));
  }
}

/// Gathered elements of the units that share the ring, ascending.
std::vector<Elements> ring_units(const Plan& plan) {
  std::vector<Elements> sizes;
  for (const UnitPlan& unit : plan.units)
    if (unit.ring_bytes > 0) sizes.push_back(unit.gathered_elements);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

/// Gathered elements that stay whole for the rest of a step.
Elements kept_elements(const Plan& plan) {
  Elements kept = 0;
  for (const UnitPlan& unit : plan.units) kept += unit.ring_bytes > 0 ? 0 : unit.gathered_elements;
  return kept;
}

/// What must be whole at once: everything kept for the step, and the largest unit of the ring.
void check_cap(const Plan& plan, Elements cap) {
  const std::vector<Elements> ring = ring_units(plan);
  const Elements least = kept_elements(plan) + (ring.empty() ? 0 : ring.back());
  FLATSHARD_EXPECTS(cap >= least, fmt::format("max_live_elements is {}, but the strategy must hold "
                                              "{} gathered elements at once",
                                              cap, least));
}

/// How many units of the ring the cap allows to be whole at once.
int units_under_cap(const Plan& plan, Elements cap) {
  Elements room = cap - kept_elements(plan);
  int units = 0;
  for (const Elements size : ring_units(plan)) {
    if (size > room) break;
    room -= size;
    ++units;
  }
  return units;
}

/// One slot for the unit in use and one for each that is gathered ahead.
void size_gather_ring(Plan& plan, const Options& options) {
  FLATSHARD_EXPECTS(options.prefetch_forward >= 0,
                    fmt::format("prefetch_forward is {}, not a count", options.prefetch_forward));
  const int backward = options.prefetch_backward == BackwardPrefetch::None ? 0 : 1;
  const int ahead = std::max(options.prefetch_forward, backward);
  const int most = units_under_cap(plan, options.max_live_elements);
  plan.gather_slots = most > ahead ? 1 + ahead : most;
  for (const UnitPlan& unit : plan.units)
    plan.gather_slot_bytes = std::max(plan.gather_slot_bytes, unit.ring_bytes);
}

/// One slot is written while another is reduced.
void size_gradient_ring(Plan& plan) {
  int reducing = 0;
  for (const UnitPlan& unit : plan.units) {
    if (unit.dedicated) continue;
    reducing += unit.gradient_bytes > 0;
    plan.gradient_slot_bytes = std::max(plan.gradient_slot_bytes, unit.gradient_bytes);
  }
  plan.gradient_slots = std::min(reducing, 2);
}

/// One slot is written while another is copied.
void size_staging(Plan& plan) {
  int staged = 0;
  for (const UnitPlan& unit : plan.units) {
    staged += unit.staging_bytes > 0;
    plan.staging_slot_bytes = std::max(plan.staging_slot_bytes, unit.staging_bytes);
  }
  plan.staging_slots = std::min(staged, 2);
}

/// What arrives on the host is added there unless it can be stored as the accumulated gradient.
void size_landing_for_host(Plan& plan) {
  const bool adds = plan.max_micro_steps > 1 && plan.accumulation == Accumulation::Running;
  int landing = 0;
  for (const Flat& flat : plan.flats) {
    if (!flat.requires_grad) continue;
    const Bytes bytes = slice_bytes(flat, flat.reduce);
    landing += bytes > 0;
    plan.landing_bytes = std::max(plan.landing_bytes, bytes);
    if (adds || flat.reduce != flat.accumulate)
      plan.arrival_bytes = std::max(plan.arrival_bytes, bytes);
  }
  plan.landing_slots = std::clamp(landing, 1, 2);
}

/// A reduced slice lands in scratch first unless it can be stored as the accumulated gradient.
Bytes landing_bytes(const Flat& flat, const Plan& plan) {
  if (sums_on_host(plan)) return 0;
  const bool adds = plan.max_micro_steps > 1 && plan.accumulation == Accumulation::Running &&
                    plan.moment != ReduceMoment::Boundary;
  const bool partial = plan.moment == ReduceMoment::ReplicaBoundary;
  const DType landing = partial ? wide_of(flat.compute) : flat.reduce;
  const bool lands = adds || landing != flat.accumulate;
  const bool rounds = partial && flat.reduce != flat.accumulate;
  return std::max(lands ? slice_bytes(flat, landing) : 0,
                  rounds ? slice_bytes(flat, flat.reduce) : 0);
}

/// A sum over the group is kept wide until the replicas' sum is rounded.
Bytes wide_bytes(const Flat& flat, const Plan& plan) {
  const DType wide = wide_of(contribution_of(flat, plan.moment));
  const bool two_levels =
      plan.shard_group > 1 && plan.replicas > 1 && plan.moment != ReduceMoment::ReplicaBoundary;
  return two_levels && flat.reduce != wide ? slice_bytes(flat, wide) : 0;
}

void size_scratch(Plan& plan) {
  for (const Flat& flat : plan.flats) {
    if (!flat.requires_grad) continue;
    plan.landing_bytes = std::max(plan.landing_bytes, landing_bytes(flat, plan));
    plan.wide_bytes = std::max(plan.wide_bytes, wide_bytes(flat, plan));
  }
  if (sums_on_host(plan)) size_landing_for_host(plan);
}

}  // namespace

void plan_sizes(Plan& plan, const Options& options) {
  size_units(plan);
  check_cap(plan, options.max_live_elements);
  size_gather_ring(plan, options);
  size_gradient_ring(plan);
  size_staging(plan);
  size_scratch(plan);
}

}  // namespace flatshard::detail
