#include <fmt/format.h>
#include <flatshard/comm/call.hpp>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "plan_arena.hpp"

namespace flatshard::detail {

namespace {

/// Where the parameters of a flat rest: the master's slice; the slice that gathers send, or all of
/// it; the whole on the device.
void add_parameter_blocks(Arena& arena, const Plan& plan, const Flat& flat, int index) {
  const bool shared = flat.requires_grad && flat.master_is_compute;  // one copy, both roles
  const bool elsewhere = flat.parameters_rest != Tier::Device;
  const Bytes slice = slice_bytes(flat, flat.compute);
  const Bytes whole = whole_bytes(flat, flat.compute);
  const Wish beside_optimizer{plan.request.offload.optimizer,
                              moves(flat, plan) && !stages(flat, plan)};
  const Wish at_rest{flat.parameters_rest, true};
  if (flat.requires_grad && !(flat.rests_whole && shared))
    arena.add(Role::Master, index, 0, slice_bytes(flat, flat.master), 0, beside_optimizer);
  if (flat.rests_whole && elsewhere)
    arena.add(Role::Compute, index, 0, whole, slice, at_rest);
  else if (!flat.rests_whole && !shared)
    arena.add(Role::Compute, index, 0, slice, 0, at_rest);
  if (flat.whole != ParametersWhole::PerUse) arena.add(Role::Whole, index, 0, whole, slice);
}

void add_gradient_blocks(Arena& arena, const Plan& plan, const Flat& flat, int index) {
  const bool whole = plan.moment == ReduceMoment::Boundary;
  const Bytes slice = slice_bytes(flat, flat.accumulate);
  const Bytes bytes = whole ? whole_bytes(flat, flat.accumulate) : slice;
  const Bytes stride = whole ? slice : 0;
  const Tier optimizer = plan.request.offload.optimizer;
  const Tier tier = sums_on_host(plan) ? optimizer : Tier::Device;
  arena.add(Role::Gradient, index, 0, bytes, stride, {tier, true});
  for (int sum = 0; sum < plan.partial_sums; ++sum)
    arena.add(Role::Partial, index, sum, bytes, stride, {tier, false});
  if (steps_on_host(plan) && tier == Tier::Device)
    arena.add(Role::ReducedGradient, index, 0, slice, 0, {optimizer, true});
}

/// What the optimizer step of a flat streams, and the partial sums that end in its gradient.
void add_step_blocks(Arena& arena, const Plan& plan, const Flat& flat, int index) {
  arena.begin_group();
  add_parameter_blocks(arena, plan, flat, index);
  if (!flat.requires_grad) return;
  add_gradient_blocks(arena, plan, flat, index);
  for (int state = 0; state < plan.request.optimizer_states; ++state)
    arena.add(Role::State, index, state, slice_bytes(flat, flat.state), 0,
              {plan.request.offload.optimizer, false});
}

void add_flat_blocks(Arena& arena, const Plan& plan) {
  for (int index = 0; index < count_of(plan.flats); ++index) {
    const Flat& flat = at(plan.flats, index);
    add_step_blocks(arena, plan, flat, index);
    if (has_secondary(flat, plan))
      arena.add(Role::Secondary, index, 0, bytes_of(secondary_slice(flat, plan), flat.compute));
  }
}

Bytes exchange_of(const Plan& plan, const Flat& flat) {
  const auto sum = [&flat](Operation operation, DType contribution, int size) {
    return exchange_bytes({operation, {}, flat.partition.slice(), contribution}, size);
  };
  const DType contribution = contribution_of(flat, plan.moment);
  const bool split = plan.shard_group > 1;
  const DType partial = split ? wide_of(contribution) : contribution;
  Bytes bytes = std::max(sum(Operation::ReduceScatter, contribution, plan.shard_group),
                         sum(Operation::AllReduce, partial, plan.replicas));
  if (plan.moment == ReduceMoment::ReplicaBoundary)
    bytes = std::max(bytes, sum(Operation::AllReduce, flat.accumulate, plan.replicas));
  return bytes;
}

/// Of the largest sum over ranks: all sums run on one stream.
Bytes largest_exchange(const Plan& plan) {
  if (!plan.request.needs_scratch) return 0;
  Bytes bytes = 0;
  for (const Flat& flat : plan.flats)
    if (flat.requires_grad) bytes = std::max(bytes, exchange_of(plan, flat));
  return bytes;
}

void add_ring_blocks(Arena& arena, const Plan& plan) {
  arena.begin_group();
  for (int slot = 0; slot < plan.gather_slots; ++slot)
    arena.add(Role::GatherRing, slot, 0, plan.gather_slot_bytes);
  for (int slot = 0; slot < plan.gradient_slots; ++slot)
    arena.add(Role::GradientRing, slot, 0, plan.gradient_slot_bytes);
  for (int unit = 0; unit < count_of(plan.units); ++unit)
    if (at(plan.units, unit).dedicated)
      arena.add(Role::GradientUnit, unit, 0, at(plan.units, unit).gradient_bytes);
  for (int slot = 0; slot < plan.landing_slots; ++slot)
    arena.add(Role::Scratch, 0, slot, plan.landing_bytes);
  arena.add(Role::Scratch, 1, 0, plan.wide_bytes);
  arena.add(Role::Exchange, 0, 0, largest_exchange(plan));
}

/// What is on its way: slices that a step made beside the optimizer, gradients that have arrived.
void add_staging_blocks(Arena& arena, const Plan& plan) {
  arena.begin_group();
  const Wish beside_optimizer{steps_on_host(plan) ? Tier::Host : Tier::Device, true};
  for (int slot = 0; slot < plan.staging_slots; ++slot)
    arena.add(Role::Staging, staging_parameters, slot, plan.staging_slot_bytes, 0,
              beside_optimizer);
  for (int slot = 0; slot < plan.landing_slots; ++slot)
    arena.add(Role::Staging, staging_gradients, slot, plan.arrival_bytes, 0, {Tier::Host, true});
  for (int slot = 0; slot < plan.upload_slots; ++slot)
    arena.add(Role::Staging, staging_uploads, slot, plan.upload_slot_bytes, 0, {Tier::Host, true});
  for (int slot = 0; slot < plan.relay_slots; ++slot)
    arena.add(Role::Staging, staging_relay, slot, plan.relay_slot_bytes, 0, {Tier::Host, true});
}

/// What passes between the host and files, in pages.
void add_nvme_buffers(Arena& arena, const Plan& plan) {
  arena.begin_group();
  const Wish paged{Tier::Host, true, SlotStore::alignment};
  const auto add = [&](const NvmeFile& file, StagingBlock owner, int index) {
    for (int buffer = 0; buffer < file.buffers; ++buffer)
      arena.add(Role::Staging, owner, buffer, file.buffer_bytes, 0, paged);
    if (file.buffers > 0)
      arena.add(Role::Staging, staging_bounce, index, plan.nvme_block_bytes, 0, paged);
  };
  add(plan.optimizer_file, staging_optimizer_buffer, 0);
  add(plan.parameter_file, staging_parameter_buffer, 1);
}

/// What the host's part of a step reads and writes beside elements.
void add_host_control_blocks(Arena& arena, const Plan& plan) {
  if (!steps_on_host(plan)) return;
  arena.add(Role::Control, control_host_step, 0,
            static_cast<Bytes>(sizeof(StepScalars)) + bytes_of(count_of(plan.flats), DType::Int64),
            0, {Tier::Host, true});
  arena.add(Role::Control, control_host_norm, 0,
            plan.norm_passes * bytes_of(norm_values(plan), DType::Float64), 0, {Tier::Host, true});
}

void add_control_blocks(Arena& arena, const Plan& plan) {
  arena.begin_group();
  arena.add(Role::Control, control_state, 0, sizeof(DeviceControl));
  arena.add(Role::Control, control_times, 0, 2 * bytes_of(count_of(plan.flats), DType::Int64));
  arena.add(Role::Control, control_norm, 0,
            plan.norm_passes * bytes_of(norm_values(plan), DType::Float64));
  arena.add(Role::Control, control_functors, 0,
            bytes_of(plan.device_groups * Elements{max_functor_bytes}, DType::UInt8));
  add_host_control_blocks(arena, plan);
}

void add_registered_blocks(Arena& arena, const Model& model) {
  arena.begin_group();
  for (int index = 0; index < count_of(model.buffers()); ++index) {
    const BufferSpec& buffer = at(model.buffers(), index);
    arena.add(Role::RegisteredData, index, 0, bytes_of(buffer.numel(), buffer.dtype));
  }
}

}  // namespace

void plan_blocks(Plan& plan, const Model& model, const Options& options) {
  FLATSHARD_EXPECTS(
      options.pinned_budget >= 0,
      fmt::format("pinned_budget is {}, not a count of bytes", options.pinned_budget));
  Arena arena(plan);
  add_flat_blocks(arena, plan);
  add_ring_blocks(arena, plan);
  add_staging_blocks(arena, plan);
  arena.cut_slots(options);
  add_nvme_buffers(arena, plan);
  add_control_blocks(arena, plan);
  add_registered_blocks(arena, model);
  arena.finish(options.pinned_budget);
}

}  // namespace flatshard::detail
