#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/sharder/plan.hpp>

#include "plan_build.hpp"

namespace flatshard {

std::string_view name_of(Role role) {
  constexpr std::array<std::string_view, role_count> names{"master",
                                                           "compute shard",
                                                           "whole parameters",
                                                           "secondary shard",
                                                           "gradient",
                                                           "partial sums",
                                                           "optimizer state",
                                                           "gather ring",
                                                           "gradient ring",
                                                           "gradient of a unit",
                                                           "reduce scratch",
                                                           "control",
                                                           "registered buffers"};
  return names[static_cast<std::size_t>(role)];
}

Bytes Plan::bytes(Role role) const {
  Bytes sum = 0;
  for (const Block& block : blocks) sum += block.role == role ? block.bytes : 0;
  return sum;
}

const Block* Plan::block(Role role, int owner, int index) const {
  for (const Block& block : blocks)
    if (block.role == role && block.owner == owner && block.index == index) return &block;
  return nullptr;
}

bool operator==(const PlanRequest& left, const PlanRequest& right) {
  return left.strategy == right.strategy && left.precision == right.precision &&
         left.offload == right.offload && left.world == right.world &&
         left.optimizer_states == right.optimizer_states &&
         left.canonical_reduction == right.canonical_reduction;
}

bool operator==(const Plan& left, const Plan& right) {
  return left.request == right.request && left.shard_group == right.shard_group &&
         left.secondary_group == right.secondary_group && left.moment == right.moment &&
         left.max_micro_steps == right.max_micro_steps && left.accumulation == right.accumulation &&
         left.units == right.units && left.flats == right.flats &&
         left.units_of_call == right.units_of_call && left.norm == right.norm &&
         left.blocks == right.blocks && left.arena_bytes == right.arena_bytes &&
         left.promises == right.promises;
}

Plan make_plan(const Model& model, const PlanRequest& request, const Options& options) {
  FLATSHARD_EXPECTS(request.world >= 1, fmt::format("world size is {}", request.world));
  FLATSHARD_EXPECTS(
      request.optimizer_states >= 0 && request.optimizer_states <= max_optimizer_states,
      fmt::format("the optimizer has {} states; at most {} are supported", request.optimizer_states,
                  max_optimizer_states));
  Plan plan;
  plan.request = request;
  plan.world = request.world;
  detail::plan_groups(plan, options);
  detail::plan_units(plan, model, options);
  detail::plan_slices(plan, model);
  detail::plan_memory(plan, model, options);
  detail::plan_promises(plan);
  return plan;
}

}  // namespace flatshard
