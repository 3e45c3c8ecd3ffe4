#include <algorithm>

#include "plan_build.hpp"

namespace flatshard {

namespace {

/// Adds up collectives of one kind.
class Ledger {
 public:
  /// `calls` collectives over `ranks` ranks; each moves `payload` bytes per rank.
  void add(const char* collective, const char* over, int ranks, int calls, Bytes payload) {
    if (ranks <= 1 || calls == 0) return;
    const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const Traffic& entry) {
      return entry.collective == collective && entry.over == over;
    });
    Traffic& entry =
        same != entries_.end() ? *same : entries_.emplace_back(Traffic{collective, over, 0, 0});
    entry.calls += calls;
    entry.bytes += calls * payload;
  }
  std::vector<Traffic> take() { return std::move(entries_); }

 private:
  std::vector<Traffic> entries_;
};

constexpr const char* group_name = "shard group";
constexpr const char* replica_name = "replicas";
constexpr const char* secondary_name = "secondary group";

Bytes gather_payload(const Plan& plan, const Flat& flat) {
  return (plan.shard_group - 1) * flat.partition.slice() * size_of(flat.compute);
}

void add_gathers(Ledger& ledger, const Plan& plan, const Flat& flat, int micro_steps) {
  const Bytes payload = gather_payload(plan, flat);
  const auto over_group = [&](int calls) {
    ledger.add("all_gather", group_name, plan.shard_group, calls, payload);
  };
  if (flat.whole == ParametersWhole::Always && flat.requires_grad) over_group(1);  // publish
  if (flat.whole == ParametersWhole::UntilBackward) over_group(1);
  if (flat.whole != ParametersWhole::PerUse) return;
  const bool secondary = plan.request.strategy.secondary_shard;
  over_group(secondary ? 1 : 2 * micro_steps);
  if (!secondary) return;
  const Bytes part = flat.partition.padded() / plan.secondary_group * size_of(flat.compute);
  ledger.add("all_gather", secondary_name, plan.secondary_group, 2 * micro_steps - 1,
             (plan.secondary_group - 1) * part);
}

void add_reductions(Ledger& ledger, const Plan& plan, const Flat& flat, int micro_steps) {
  if (!flat.requires_grad) return;
  const bool boundary = plan.moment == ReduceMoment::Boundary;
  const int in_group = boundary ? 1 : micro_steps;
  const int over_replicas = plan.moment == ReduceMoment::Micro ? micro_steps : 1;
  const Elements slice = flat.partition.slice();
  const DType contribution = detail::contribution_of(flat, plan.moment);
  ledger.add("reduce_scatter", group_name, plan.shard_group, in_group,
             (plan.shard_group - 1) * slice * size_of(contribution));
  DType partial = plan.shard_group > 1 ? detail::wide_of(contribution) : contribution;
  if (plan.moment == ReduceMoment::ReplicaBoundary) partial = flat.accumulate;
  ledger.add("all_reduce", replica_name, plan.replicas, over_replicas,
             2 * (plan.replicas - 1) * slice * size_of(partial) / std::max(plan.replicas, 1));
}

}  // namespace

std::vector<Traffic> traffic(const Plan& plan, int micro_steps) {
  Ledger ledger;
  for (const Flat& flat : plan.flats) add_gathers(ledger, plan, flat, micro_steps);
  for (const Flat& flat : plan.flats) add_reductions(ledger, plan, flat, micro_steps);
  return ledger.take();
}

}  // namespace flatshard
