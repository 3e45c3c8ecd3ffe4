#include <algorithm>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

constexpr Bytes slice_alignment = 128;  // bytes: two cache lines, and NCCL's widest access

/// Elements that every start and slice of a flat is a multiple of.
Elements alignment_of(const Flat& flat) {
  const Bytes narrowest =
      std::min({size_of(flat.master), size_of(flat.compute), size_of(flat.reduce),
                size_of(flat.accumulate), size_of(flat.state)});
  return slice_alignment / narrowest;
}

void lay_out(Flat& flat, const Model& model, int shard_group) {
  std::vector<Elements> numels;
  for (int index : flat.parameters) numels.push_back(at(model.parameters(), index).numel());
  const Elements alignment = alignment_of(flat);
  flat.layout = FlatLayout(numels, alignment);
  flat.partition = Partition(flat.layout.total(), shard_group, alignment);
}

CanonicalIndex canonical_index(const Model& model) {
  std::vector<Elements> numels;
  for (const ParameterSpec& parameter : model.parameters()) numels.push_back(parameter.numel());
  return CanonicalIndex(numels);
}

/// A fragment as a run: where it lies, which element it starts at, whose hyper-parameters it takes.
StepRun run_of(const Fragment& fragment, const Flat& flat, const Plan& plan, const Model& model) {
  const int parameter = at(flat.parameters, fragment.parameter);
  return {fragment.slice_offset, fragment.count,
          plan.canonical.start(parameter) + fragment.parameter_offset,
          at(model.parameters(), parameter).options.group};
}

/// The fragments that one rank owns, as runs; empty ones left out.
std::vector<StepRun> fragment_runs(const Flat& flat, const Plan& plan, const Model& model,
                                   Rank rank) {
  std::vector<StepRun> runs;
  for (const Fragment& fragment : fragments(flat.layout, flat.partition, rank))
    if (fragment.count > 0) runs.push_back(run_of(fragment, flat, plan, model));
  return runs;
}

/// Neighbours of one group become one run, with the padding between them.
std::vector<StepRun> merged(const std::vector<StepRun>& runs) {
  std::vector<StepRun> merged;
  for (const StepRun& next : runs) {
    if (!merged.empty() && merged.back().group == next.group)
      merged.back().count = next.offset + next.count - merged.back().offset;
    else
      merged.push_back(next);
  }
  return merged;
}

/// Runs of every trainable flat; contiguous canonical runs of the gradients each rank owns.
std::vector<std::vector<OwnedRun>> plan_runs(Plan& plan, const Model& model) {
  std::vector<std::vector<OwnedRun>> owned(static_cast<std::size_t>(plan.shard_group));
  for (int index = 0; index < count_of(plan.flats); ++index) {
    Flat& flat = at(plan.flats, index);
    if (!flat.requires_grad) continue;
    for (Rank rank = 0; rank < plan.shard_group; ++rank) {
      const std::vector<StepRun> runs = fragment_runs(flat, plan, model, rank);
      for (const StepRun& run : runs)
        at(owned, rank).push_back({index, run.offset, run.canonical, run.count});
      flat.runs.push_back(flat.step_row.stochastic ? runs : merged(runs));
    }
  }
  return owned;
}

bool has_fp64_gradients(const Plan& plan) {
  return std::any_of(plan.flats.begin(), plan.flats.end(), [](const Flat& flat) {
    return flat.requires_grad && flat.accumulate == DType::Float64;
  });
}

}  // namespace

void plan_slices(Plan& plan, const Model& model, const Options& options) {
  plan.canonical = canonical_index(model);
  for (Flat& flat : plan.flats) lay_out(flat, model, plan.shard_group);
  plan.norm = plan_norm(plan_runs(plan, model));
  for (const RankNorm& rank : plan.norm.ranks)
    plan.norm_leaves = std::max(plan.norm_leaves, count_of(rank.leaves));
  plan.norm_passes = options.norm == NormKind::Two && has_fp64_gradients(plan) ? 2 : 1;
}

}  // namespace flatshard::detail
