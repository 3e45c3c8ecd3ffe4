#include <flatshard/comm/call.hpp>

#include <algorithm>
#include <tuple>

#include "plan_build.hpp"

namespace flatshard {

namespace {

/// Who takes part in a collective.
struct Members {
  const char* name;
  int count;
};

/// Adds up collectives of one kind.
class Ledger {
 public:
  void add(const char* what, int calls, const CollectiveCall& call, Members members) {
    if (members.count <= 1 || calls == 0) return;
    Traffic& entry = entry_of(what, call.operation, members);
    entry.calls += calls;
    entry.bytes += calls * bytes_sent(call, 0, members.count);
  }
  std::vector<Traffic> take() { return std::move(entries_); }

 private:
  Traffic& entry_of(const char* what, Operation operation, Members members) {
    const Traffic kind{std::string(name_of(operation)), members.name, 0, 0, what};
    const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const Traffic& entry) {
      return std::tie(entry.what, entry.collective, entry.over) ==
             std::tie(kind.what, kind.collective, kind.over);
    });
    return same != entries_.end() ? *same : entries_.emplace_back(kind);
  }

  std::vector<Traffic> entries_;
};

class Forecast {
 public:
  Forecast(const Plan& plan, int micro_steps) : plan_(plan), micro_steps_(micro_steps) {}

  std::vector<Traffic> take() {
    for (const Flat& flat : plan_.flats)
      if (!flat.is_empty()) add_gathers(flat);
    for (const Flat& flat : plan_.flats)
      if (flat.requires_grad && !flat.is_empty()) add_reductions(flat);
    if (plan_.norm.root >= 0)
      gather("norm", plan_.norm_passes, plan_.norm.nodes_per_rank, DType::Float64, shard_);
    return ledger_.take();
  }

 private:
  void gather(const char* what, int calls, Elements count, DType dtype, Members members) {
    ledger_.add(what, calls, {Operation::AllGather, {}, count, dtype, dtype}, members);
  }

  void add_gathers(const Flat& flat) {
    const Elements slice = flat.partition.slice();
    if (flat.rests_whole)  // published after the step
      return gather("parameters", flat.requires_grad ? 1 : 0, slice, flat.compute, shard_);
    const bool secondary = plan_.request.strategy.secondary_shard;
    const bool per_use = flat.whole == ParametersWhole::PerUse;
    const int uses = per_use ? 2 * micro_steps_ : 1;  // forward and backward of each, or once
    const int first = per_use && secondary ? 1 : uses;
    gather("parameters", first, slice, flat.compute, shard_);
    gather("parameters", uses - first, detail::secondary_slice(flat, plan_), flat.compute,
           secondary_);
  }

  void add_reductions(const Flat& flat) {
    const Elements slice = flat.partition.slice();
    const DType contribution = detail::contribution_of(flat, plan_.moment);
    const bool boundary = plan_.moment == ReduceMoment::Boundary;
    const bool every_time = plan_.moment == ReduceMoment::Micro;
    ledger_.add("gradients", boundary ? 1 : micro_steps_,
                {Operation::ReduceScatter, {}, slice, contribution, contribution}, shard_);
    ledger_.add("gradients", every_time ? micro_steps_ : 1,
                {Operation::AllReduce, {}, slice, over_replicas(flat), flat.reduce}, replicas_);
  }

  /// The dtype of what a replica contributes: a gradient, a group's sum, or what it accumulated.
  DType over_replicas(const Flat& flat) const {
    if (plan_.moment == ReduceMoment::ReplicaBoundary) return flat.accumulate;
    const DType contribution = detail::contribution_of(flat, plan_.moment);
    return plan_.shard_group > 1 ? detail::wide_of(contribution) : contribution;
  }

  const Plan& plan_;
  int micro_steps_;
  Members shard_{"shard group", plan_.shard_group};
  Members replicas_{"replicas", plan_.replicas};
  Members secondary_{"secondary group", plan_.secondary_group};
  Ledger ledger_;
};

}  // namespace

std::vector<Traffic> traffic(const Plan& plan, int micro_steps) {
  return Forecast(plan, micro_steps).take();
}

}  // namespace flatshard
