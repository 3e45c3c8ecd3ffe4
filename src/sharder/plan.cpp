#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/sharder/plan.hpp>

#include <algorithm>

#include "plan_build.hpp"

namespace flatshard {

namespace {

void check_request(const PlanRequest& request) {
  FLATSHARD_EXPECTS(request.world >= 1, fmt::format("world size is {}", request.world));
  const int states = request.optimizer_states;
  FLATSHARD_EXPECTS(states >= 0 && states <= max_optimizer_states,
                    fmt::format("the optimizer has {} states; at most {} are supported", states,
                                max_optimizer_states));
}

}  // namespace

std::string_view name_of(Role role) {
  constexpr std::array<std::string_view, role_count> names{
      "master",        "compute shard",      "whole parameters", "secondary shard",
      "gradient",      "partial sums",       "optimizer state",  "gather ring",
      "gradient ring", "gradient of a unit", "reduce scratch",   "exchange",
      "control",       "registered buffers", "reduced gradient", "staging"};
  return names[static_cast<std::size_t>(role)];
}

std::string_view name_of(Memory memory) {
  constexpr std::array<std::string_view, memory_count> names{"device memory", "pinned host memory",
                                                             "pageable host memory", "NVMe"};
  return names[static_cast<std::size_t>(memory)];
}

Bytes Plan::bytes(Role role) const {
  Bytes sum = 0;
  for (const Block& block : blocks) sum += block.role == role ? block.bytes : 0;
  return sum;
}

Bytes Plan::bytes(Role role, Memory memory) const {
  Bytes sum = 0;
  for (const Block& block : blocks)
    sum += block.role == role && block.memory == memory ? block.bytes : 0;
  return sum;
}

Bytes Plan::bytes(Memory memory) const {
  if (memory == Memory::Device) return arena_bytes;
  if (memory == Memory::Nvme) return optimizer_file.bytes + parameter_file.bytes;
  return memory == Memory::Pinned ? pinned_bytes : pageable_bytes;
}

const Block* Plan::block(Role role, int owner, int index) const {
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const Block& block) {
    return block.role == role && block.owner == owner && block.index == index;
  });
  return found == blocks.end() ? nullptr : &*found;
}

Plan make_plan(const Model& model, const PlanRequest& asked, const Options& options) {
  PlanRequest request = asked;
  if (options.offload) request.offload = *options.offload;
  check_request(request);
  if (options.loss_scale) validate(*options.loss_scale);
  Plan plan;
  plan.request = request;
  plan.world = request.world;
  plan.device_groups = options.capturable ? static_cast<int>(options.groups.size()) : 0;
  detail::plan_groups(plan, options);
  detail::plan_units(plan, model, options);
  detail::plan_flats(plan, model, options);
  detail::plan_slices(plan, model, options);
  detail::plan_parts(plan, options);
  detail::plan_sizes(plan, options);
  detail::plan_blocks(plan, model, options);
  detail::plan_promises(plan);
  return plan;
}

}  // namespace flatshard
