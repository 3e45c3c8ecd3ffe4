// Steps of make_plan, each a pure function on the Plan so far.
#pragma once

#include <flatshard/sharder/plan.hpp>

namespace flatshard::detail {

/// G, replicas, secondary group, reduce moment, micro-steps.
void plan_groups(Plan& plan, const Options& options);
/// Units and the flats of each; who touches what.
void plan_units(Plan& plan, const Model& model, const Options& options);
/// Slices, runs of the optimizer step, norm tree.
void plan_slices(Plan& plan, const Model& model);
/// Ring sizes, scratch, every block of the arena.
void plan_memory(Plan& plan, const Model& model, const Options& options);
/// What is promised of the bits.
void plan_promises(Plan& plan);

/// What Role::Control blocks hold, by owner.
enum ControlBlock {
  control_state,  // a DeviceControl
  control_times,  // (flats) int64 time steps, (flats) int64 who takes part in this step
  control_norm    // norm_passes times norm_values(plan) doubles
};

inline constexpr int report_ring = 4;  // steps whose reports are kept

/// Decisions and reports, in device memory.
struct DeviceControl {
  StepControl step;      // what the update kernels read
  StepControl reported;  // step in backward: what is known once all gradients are
  std::array<StepReport, report_ring> reports;
};

/// The sum of squares or the largest magnitude; fp64 gradients need both, because the squares of
/// finite ones may overflow.
inline constexpr int norm_passes = 2;

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

}  // namespace flatshard::detail
