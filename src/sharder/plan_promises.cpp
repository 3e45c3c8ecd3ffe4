#include <fmt/format.h>

#include <algorithm>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

/// Sums over groups of another size than a power of two follow T over T, not T.
bool follows_the_tree(const Plan& plan) {
  return plan.shard_group == plan.world || is_power_of_two(plan.shard_group);
}

template <class Holds>
bool all_trainable(const Plan& plan, Holds&& holds) {
  return std::all_of(plan.flats.begin(), plan.flats.end(),
                     [&](const Flat& flat) { return !flat.requires_grad || holds(flat); });
}

/// What is accumulated keeps every bit of a sum over ranks.
bool accumulates_wide(const Plan& plan) {
  return all_trainable(plan,
                       [](const Flat& flat) { return flat.accumulate == wide_of(flat.compute); });
}

/// Gradients of all micro-batches are summed by one tree, whoever computes them.
bool sums_by_one_tree(const Plan& plan) {
  const bool tree = plan.accumulation == Accumulation::Tree || plan.max_micro_steps == 1;
  return tree && accumulates_wide(plan) && is_power_of_two(plan.world) && follows_the_tree(plan);
}

/// A group's sum is rounded, or others are added to it, before replicas meet.
bool depends_on_group_size(const Plan& plan) {
  const bool straight = plan.max_micro_steps == 1 && accumulates_wide(plan);
  return plan.moment == ReduceMoment::ReplicaBoundary && !straight && !sums_by_one_tree(plan);
}

/// Nothing is rounded after each micro-step that other moments round once.
bool reduces_wide(const Plan& plan) {
  return all_trainable(plan, [](const Flat& flat) { return flat.reduce == wide_of(flat.compute); });
}

std::string across_strategies(const Plan& plan) {
  if (!follows_the_tree(plan))
    return fmt::format(
        "sums run over groups of {} and then over {} replicas: equal to no other strategy at world "
        "size {}",
        plan.shard_group, plan.replicas, plan.world);
  const std::string group =
      depends_on_group_size(plan) ? fmt::format(", shard group {}", plan.shard_group) : "";
  return fmt::format(
      "same bits for every strategy, wrap, prefetch, cap, stream form, thread count and "
      "instruction set at world size {}{}, this count of micro-steps and this reduce moment",
      plan.world, group);
}

}  // namespace

void plan_promises(Plan& plan) {
  if (!plan.request.canonical_reduction) {
    plan.promises.emplace_back(
        "sums follow the communicator's own order: same bits from run to run only if it promises "
        "so");
    return;
  }
  plan.promises.push_back(across_strategies(plan));
  if (sums_by_one_tree(plan) && reduces_wide(plan))
    plan.promises.emplace_back(
        "same bits for every reduce moment and every split of the global batch into W * K "
        "micro-batches, W and K powers of two");
}

}  // namespace flatshard::detail
