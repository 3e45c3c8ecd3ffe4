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

std::vector<Elements> numels(const Model& model, const std::vector<int>& parameters) {
  std::vector<Elements> counts;
  for (int index : parameters)
    counts.push_back(model.parameters()[static_cast<std::size_t>(index)].numel());
  return counts;
}

CanonicalIndex canonical_index(const Model& model) {
  std::vector<Elements> counts;
  for (const ParameterSpec& parameter : model.parameters()) counts.push_back(parameter.numel());
  return CanonicalIndex(counts);
}

/// A fragment as a run: where it lies, which element it starts at, whose hyper-parameters it takes.
StepRun run_of(const Fragment& fragment, const Flat& flat, const Plan& plan, const Model& model) {
  const int parameter = flat.parameters[static_cast<std::size_t>(fragment.parameter)];
  return {fragment.slice_offset, fragment.count,
          plan.canonical.start(parameter) + fragment.parameter_offset,
          model.parameters()[static_cast<std::size_t>(parameter)].options.group};
}

/// Runs of one rank's slice; without stochastic rounding, neighbours of one group become one run.
std::vector<StepRun> step_runs(const Flat& flat, const Plan& plan, const Model& model, Rank rank) {
  std::vector<StepRun> runs;
  for (const Fragment& fragment : fragments(flat.layout, flat.partition, rank)) {
    const StepRun next = run_of(fragment, flat, plan, model);
    if (next.count == 0) continue;
    const bool merge =
        !runs.empty() && !flat.step_row.stochastic && runs.back().group == next.group;
    if (merge)
      runs.back().count = next.offset + next.count - runs.back().offset;
    else
      runs.push_back(next);
  }
  return runs;
}

/// Contiguous canonical runs of the gradients that one rank of the shard group owns.
std::vector<OwnedRun> owned_runs(const Plan& plan, const Model& model, Rank rank) {
  std::vector<OwnedRun> owned;
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index) {
    const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
    if (!flat.requires_grad) continue;
    for (const Fragment& fragment : fragments(flat.layout, flat.partition, rank)) {
      const StepRun run = run_of(fragment, flat, plan, model);
      if (run.count > 0) owned.push_back({index, run.offset, run.canonical, run.count});
    }
  }
  return owned;
}

void plan_norm_of(Plan& plan, const Model& model) {
  std::vector<std::vector<OwnedRun>> runs;
  for (Rank rank = 0; rank < plan.shard_group; ++rank)
    runs.push_back(owned_runs(plan, model, rank));
  plan.norm = plan_norm(runs);
  for (const RankNorm& rank : plan.norm.ranks)
    plan.norm_leaves = std::max(plan.norm_leaves, static_cast<int>(rank.leaves.size()));
}

}  // namespace

void plan_slices(Plan& plan, const Model& model) {
  plan.canonical = canonical_index(model);
  for (Flat& flat : plan.flats) {
    const Elements alignment = alignment_of(flat);
    flat.layout = FlatLayout(numels(model, flat.parameters), alignment);
    flat.partition = Partition(flat.layout.total(), plan.shard_group, alignment);
    for (Rank rank = 0; rank < plan.shard_group && flat.requires_grad; ++rank)
      flat.runs.push_back(step_runs(flat, plan, model, rank));
  }
  plan_norm_of(plan, model);
}

}  // namespace flatshard::detail
