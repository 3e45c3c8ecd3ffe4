#include <fmt/format.h>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

/// Sums over groups of another size than a power of two follow T over T, not T.
bool follows_the_tree(const Plan& plan) {
  return plan.shard_group == plan.world || is_power_of_two(plan.shard_group);
}

bool accumulates_wide(const Plan& plan) {
  const PrecisionTraits& roles = plan.request.precision;
  const DType wide = roles.master == DType::Float64 ? DType::Float64 : DType::Float32;
  return roles.reduce == wide && roles.accumulate == wide;
}

std::string across_strategies(const Plan& plan) {
  if (!follows_the_tree(plan))
    return fmt::format(
        "sums run over groups of {} and then over {} replicas: equal to no other strategy at world "
        "size {}",
        plan.shard_group, plan.replicas, plan.world);
  return fmt::format(
      "same bits for every strategy, wrap, prefetch, cap, stream form, thread count and "
      "instruction "
      "set at world size {}, this count of micro-steps and this reduce moment",
      plan.world);
}

}  // namespace

void plan_promises(Plan& plan) {
  if (!plan.request.canonical_reduction) {
    plan.promises.push_back(
        "sums follow the communicator's own order: same bits from run to run only if it promises "
        "so");
    return;
  }
  plan.promises.push_back(across_strategies(plan));
  const bool tree = plan.accumulation == Accumulation::Tree || plan.max_micro_steps == 1;
  if (tree && accumulates_wide(plan) && is_power_of_two(plan.world) && follows_the_tree(plan))
    plan.promises.push_back(
        "same bits for every reduce moment and every split of the global batch into W * K "
        "micro-batches, W and K powers of two");
}

}  // namespace flatshard::detail
