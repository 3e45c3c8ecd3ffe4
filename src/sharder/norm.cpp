#include "norm.hpp"

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

std::vector<NormAdd> shifted(const std::vector<TreeAdd>& adds, int by) {
  std::vector<NormAdd> result;
  for (const TreeAdd& add : adds) result.push_back({add.into + by, add.from + by});
  return result;
}

}  // namespace

GradientNorm::GradientNorm(Runtime& runtime, NormKind kind, NormHook hook)
    : runtime_(runtime),
      kind_(kind),
      hook_(std::move(hook)),
      values_(reinterpret_cast<double*>(runtime.address(Role::Control, control_norm))),
      host_values_(reinterpret_cast<double*>(runtime.address(Role::Control, control_host_norm))),
      summed_(runtime.make_event()),
      value_count_(norm_values(runtime.plan)) {
  const Plan& plan = runtime.plan;
  const auto rank = static_cast<std::size_t>(runtime.shard.rank());
  const RankNorm& own = plan.norm.ranks[rank];
  for (int index = 0; index < static_cast<int>(own.leaves.size()); ++index) {
    const NormLeaf& leaf = own.leaves[static_cast<std::size_t>(index)];
    if (groups_.empty() || groups_.back().flat != leaf.buffer)
      groups_.push_back({leaf.buffer, index, {}});
    groups_.back().nodes.push_back({leaf.offset, leaf.count, leaf.level});
  }
  local_adds_ = shifted(own.adds, 0);
  const int exchange = plan.norm_leaves + runtime.shard.rank() * plan.norm.nodes_per_rank;
  for (int node = 0; node < static_cast<int>(own.exported.size()); ++node)
    local_adds_.push_back({exchange + node, own.exported[static_cast<std::size_t>(node)]});
  global_adds_ = shifted(plan.norm.adds, plan.norm_leaves);
  checks_largest_ = plan.norm_passes == 2;
}

double* GradientNorm::result_of(int pass) const {
  if (runtime_.plan.norm.root < 0) return nullptr;
  return values_of(pass) + runtime_.plan.norm_leaves + runtime_.plan.norm.root;
}

void GradientNorm::begin(Tier tier) {
  tier_ = tier;
  begun_ = true;
  const auto bytes = static_cast<Bytes>(sizeof(double)) * value_count_ * runtime_.plan.norm_passes;
  if (runtime_.plan.norm.root >= 0)
    lane().kernels.zero(local_values(values_of(0)), bytes, lane().stream);
}

void GradientNorm::offer(Tier tier, int flat, const std::byte* slice, DType dtype) {
  if (!begun_ || tier != tier_) return;
  for (const Group& group : groups_)
    if (group.flat == flat) sum(group, slice, dtype);
}

void GradientNorm::measure() {
  if (!begun_) {
    begin(Tier::Device);
    for (const Group& group : groups_)
      sum(group, runtime_.memory(group.flat).gradient_slice, runtime_.flat(group.flat).accumulate);
  }
  begun_ = false;
  pass(kind_, values_of(0));
  if (checks_largest_) pass(NormKind::Infinity, values_of(1));
}

/// Of every pass.
void GradientNorm::sum(const Group& group, const std::byte* slice, DType dtype) {
  sum_leaves(kind_, group, slice, dtype, local_values(values_of(0)));
  if (checks_largest_)
    sum_leaves(NormKind::Infinity, group, slice, dtype, local_values(values_of(1)));
}

void GradientNorm::pass(NormKind kind, double* values) {
  const Plan& plan = runtime_.plan;
  if (plan.norm.root < 0) return;
  double* local = local_values(values);
  merge(kind, local_adds_, local, lane());
  if (local != values) send_to_device(local, values);
  double* exchange = values + plan.norm_leaves;
  runtime_.shard.all_gather("norm", exchange + runtime_.shard.rank() * plan.norm.nodes_per_rank,
                            exchange, plan.norm.nodes_per_rank, DType::Float64, runtime_.reduce);
  merge(kind, global_adds_, values, {runtime_.kernels, runtime_.reduce});
  if (hook_) hook_(exchange + plan.norm.root, kind, runtime_.reduce);
}

/// Where the leaves of a pass, which ends at `values`, are summed.
double* GradientNorm::local_values(double* values) const {
  return tier_ == Tier::Device ? values : host_values_ + (values - values_);
}

/// What this rank gives to the exchange.
void GradientNorm::send_to_device(const double* local, double* values) {
  const Plan& plan = runtime_.plan;
  const Elements own = plan.norm_leaves + runtime_.shard.rank() * plan.norm.nodes_per_rank;
  runtime_.order(lane().stream, *summed_, runtime_.reduce);
  runtime_.device.copy(local + own, values + own,
                       plan.norm.nodes_per_rank * static_cast<Bytes>(sizeof(double)),
                       runtime_.reduce);
}

void GradientNorm::sum_leaves(NormKind kind, const Group& group, const std::byte* slice,
                              DType dtype, double* values) {
  if (kind == NormKind::Two)
    lane().kernels.square_sums(slice, dtype, group.nodes, values + group.first, lane().stream);
  else
    lane().kernels.absolute_maxima(slice, dtype, group.nodes, values + group.first, lane().stream);
}

void GradientNorm::merge(NormKind kind, std::span<const NormAdd> adds, double* values, Lane lane) {
  if (kind == NormKind::Two)
    lane.kernels.add_nodes(adds, values, lane.stream);
  else
    lane.kernels.max_nodes(adds, values, lane.stream);
}

}  // namespace flatshard::detail
