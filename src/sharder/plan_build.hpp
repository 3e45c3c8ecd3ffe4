// Steps of make_plan, each a pure function on the Plan so far.
#pragma once

#include <flatshard/sharder/plan.hpp>

#include <array>

namespace flatshard::detail {

/// G, replicas, secondary group, reduce moment, micro-steps.
void plan_groups(Plan& plan, const Options& options);
/// Units: their modules, how often calls use them, which calls touch them.
void plan_units(Plan& plan, const Model& model, const Options& options);
/// The flats of each unit, not yet laid out; where each parameter went.
void plan_flats(Plan& plan, const Model& model, const Options& options);
/// Layout and slices of each flat, runs of the optimizer step, norm tree.
void plan_slices(Plan& plan, const Model& model, const Options& options);
/// Which slices the host steps with in parts, and the buffers for these.
void plan_parts(Plan& plan, const Options& options);
/// What is whole at once: sizes of units, rings and scratch; refuses a cap that is too low.
void plan_sizes(Plan& plan, const Options& options);
/// Cuts the files into slots for `blocks`, which gets their offsets; sizes the buffers.
void plan_slots(Plan& plan, std::vector<Block>& blocks, const Options& options);
/// Every block of the arenas.
void plan_blocks(Plan& plan, const Model& model, const Options& options);
/// What is promised of the bits.
void plan_promises(Plan& plan);

/// container[index] for an int.
template <class Container>
auto& at(Container& container, int index) {
  return container[static_cast<std::size_t>(index)];
}
/// container.size() as an int.
template <class Container>
int count_of(const Container& container) {
  return static_cast<int>(container.size());
}

/// What Role::Control blocks hold, by owner.
enum ControlBlock {
  control_state,      // a DeviceControl
  control_times,      // (flats) int64 time steps, (flats) int64 who takes part in this step
  control_norm,       // norm_passes times norm_values(plan) doubles
  control_functors,   // (device groups, max_functor_bytes) bytes: hyper-parameters of each group
  control_host_step,  // on the host: the decision's StepScalars, (flats) int64 time steps
  control_host_norm   // on the host: as control_norm
};
/// What Role::Staging blocks hold, by owner.
enum StagingBlock {
  staging_parameters,        // compute-dtype slices that the step made, beside the optimizer
  staging_gradients,         // on the host: reduced slices that are about to be added
  staging_optimizer_buffer,  // on the host: one unit of Plan::optimizer_file
  staging_parameter_buffer,  // on the host: one unit of Plan::parameter_file
  staging_uploads,           // on the host: parts of compute-dtype slices that the step made
  staging_relay,             // on the host: parts of gradients that are used as they arrive
  staging_bounce             // on the host, by file: what a SlotStore takes
};

inline constexpr int report_ring = 4;  // steps whose reports are kept

/// Decisions and reports, in device memory.
struct DeviceControl {
  StepControl step;      // what the update kernels read
  StepControl reported;  // step in backward: what is known once all gradients are
  std::array<StepReport, report_ring> reports;
};

/// The optimizer steps on the host, in its memory: where it rests, or through which it passes.
inline bool steps_on_host(const Plan& plan) {
  return plan.request.offload.optimizer != Tier::Device;
}
/// Masters, states and gradients are in memory only while they are worked on.
inline bool steps_from_nvme(const Plan& plan) {
  return plan.request.offload.optimizer == Tier::Nvme;
}
/// Gradients accumulate beside that optimizer: no later reduction needs the sums on the device.
inline bool sums_on_host(const Plan& plan) {
  return steps_on_host(plan) && plan.moment == ReduceMoment::Micro;
}
/// The gradient of so many micro-steps that steps on the host is complete on the device before it
/// goes there. (What is accumulated holds what is reduced exactly: policy/rules.hpp.)
inline bool leaves_device_complete(const Plan& plan, int micro_steps) {
  return !sums_on_host(plan) || micro_steps == 1;
}
/// What a step makes of a flat goes elsewhere: to another tier, or into a slot of its own.
inline bool moves(const Flat& flat, const Plan& plan) {
  return flat.requires_grad && (flat.parameters_rest != plan.request.offload.optimizer ||
                                flat.parameters_rest == Tier::Nvme);
}
/// And is rounded beside the optimizer first.
inline bool stages(const Flat& flat, const Plan& plan) {
  return moves(flat, plan) && flat.step_row.writes_copy;
}

/// Doubles of one norm pass: leaves of this rank, then the nodes of all ranks.
inline Elements norm_values(const Plan& plan) {
  return plan.norm_leaves + Elements{plan.norm.nodes_per_rank} * plan.shard_group;
}

/// The dtype in which sums of `contribution` are formed.
inline DType wide_of(DType contribution) {
  return contribution == DType::Float64 ? DType::Float64 : DType::Float32;
}

/// The dtype of what a rank contributes to a reduction over ranks.
inline DType contribution_of(const Flat& flat, ReduceMoment moment) {
  return moment == ReduceMoment::Boundary ? flat.accumulate : flat.compute;
}

/// A second, in-group shard serves later gathers of the flat.
inline bool has_secondary(const Flat& flat, const Plan& plan) {
  return plan.request.strategy.secondary_shard && flat.whole == ParametersWhole::PerUse &&
         !flat.rests_whole;
}

/// Elements of a flat that one rank keeps in its secondary shard.
inline Elements secondary_slice(const Flat& flat, const Plan& plan) {
  return flat.partition.padded() / plan.secondary_group;
}

}  // namespace flatshard::detail
