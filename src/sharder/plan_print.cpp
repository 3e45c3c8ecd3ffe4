#include <fmt/format.h>
#include <flatshard/sharder/plan.hpp>

#include <algorithm>
#include <iterator>

namespace flatshard {

namespace {

std::string_view name_of(ReduceMoment moment) {
  if (moment == ReduceMoment::Micro) return "every micro-step";
  return moment == ReduceMoment::Boundary
             ? "once, at the last micro-step"
             : "in the group every micro-step, over replicas at the last";
}

std::string_view name_of(ParametersWhole whole) {
  if (whole == ParametersWhole::Always) return "always";
  return whole == ParametersWhole::UntilBackward ? "from first use to step" : "per use";
}

std::string_view name_of(Tier tier) {
  if (tier == Tier::Device) return "device";
  return tier == Tier::Host ? "host" : "NVMe disk";
}

using Text = std::back_insert_iterator<std::string>;

/// The directions in which something passes so.
void print_parts(Text out, const Plan& plan) {
  if (plan.update_part == 0) return;
  const std::string down =
      plan.relay_slots > 0 ? fmt::format("gradients down through {}", plan.relay_slots) : "";
  const std::string up =
      plan.upload_slots > 0 ? fmt::format("new parameters up through {}", plan.upload_slots) : "";
  fmt::format_to(out, "longer slices pass in parts of {} elements, {}{}{} buffers\n",
                 plan.update_part, down, !down.empty() && !up.empty() ? " and " : "", up);
}

void print_head(Text out, const Plan& plan) {
  const PrecisionTraits& roles = plan.request.precision;
  fmt::format_to(out, "world size {}, shard group {}, replicas {}", plan.world, plan.shard_group,
                 plan.replicas);
  if (plan.request.strategy.secondary_shard)
    fmt::format_to(out, ", secondary group {}", plan.secondary_group);
  fmt::format_to(out,
                 "\ndtypes: master {}, compute and gather {}, reduce {}, accumulate {}, state {}\n",
                 flatshard::name_of(roles.master), flatshard::name_of(roles.compute),
                 flatshard::name_of(roles.reduce), flatshard::name_of(roles.accumulate),
                 flatshard::name_of(roles.state));
  fmt::format_to(out, "micro-steps up to {}, {} accumulation, gradients reduced {}\n",
                 plan.max_micro_steps, plan.accumulation == Accumulation::Tree ? "tree" : "running",
                 name_of(plan.moment));
  const auto is_narrow = [](const Flat& flat) {
    return flat.requires_grad && size_of(flat.accumulate) < size_of(flat.master);
  };
  if (std::any_of(plan.flats.begin(), plan.flats.end(), is_narrow))
    fmt::format_to(out, "gradients of one micro-step rest as they are reduced\n");
  if (plan.request.offload != OffloadTraits{})
    fmt::format_to(
        out, "between uses parameters rest on the {}, optimizer and gradients on the {}\n",
        name_of(plan.request.offload.parameters), name_of(plan.request.offload.optimizer));
  print_parts(out, plan);
}

void print_memory(Text out, const Plan& plan, Memory memory) {
  fmt::format_to(out, "\nbytes per rank, {}:\n", flatshard::name_of(memory));
  Bytes sum = 0;
  for (int index = 0; index < role_count; ++index) {
    const Role role = static_cast<Role>(index);
    const Bytes bytes = plan.bytes(role, memory);
    sum += bytes;
    if (bytes > 0) fmt::format_to(out, "  {:<22}{:>18}\n", flatshard::name_of(role), bytes);
  }
  fmt::format_to(out, "  {:<22}{:>18}\n", "alignment and skew", plan.bytes(memory) - sum);
  fmt::format_to(out, "  {:<22}{:>18}\n", "all", plan.bytes(memory));
}

void print_file(Text out, std::string_view what, const NvmeFile& file, Bytes block) {
  if (file.buffers == 0) return;
  fmt::format_to(out, "  {}: {} slots, in blocks of {}, through {} buffer{} of {} in host memory\n",
                 what, file.slots.size(), block, file.buffers, file.buffers == 1 ? "" : "s",
                 file.buffer_bytes);
}

void print_bytes(Text out, const Plan& plan) {
  for (int index = 0; index < memory_count; ++index) {
    const Memory memory = static_cast<Memory>(index);
    if (memory == Memory::Device || plan.bytes(memory) > 0) print_memory(out, plan, memory);
  }
  print_file(out, "masters, states, gradients", plan.optimizer_file, plan.nvme_block_bytes);
  print_file(out, "parameters", plan.parameter_file, plan.nvme_block_bytes);
}

void print_units(Text out, const Plan& plan) {
  fmt::format_to(out, "\n{:<28}{:>14}{:>14}{:>9}  {}\n", "unit/flat", "elements", "slice", "grad",
                 "whole");
  for (const Flat& flat : plan.flats)
    fmt::format_to(out, "{:<28}{:>14}{:>14}{:>9}  {}\n", flat.label, flat.layout.total(),
                   flat.partition.slice(), flat.requires_grad ? "yes" : "frozen",
                   name_of(flat.whole));
}

void print_traffic(Text out, const Plan& plan) {
  fmt::format_to(out, "\ncollectives of a step of {} micro-step{}, bytes sent per rank:\n",
                 plan.max_micro_steps, plan.max_micro_steps == 1 ? "" : "s");
  for (const Traffic& entry : traffic(plan, plan.max_micro_steps))
    fmt::format_to(out, "  {:<12}{:<16}{:<16}{:>6} calls{:>18}\n", entry.what, entry.collective,
                   entry.over, entry.calls, entry.bytes);
}

}  // namespace

std::string to_string(const Plan& plan) {
  std::string text;
  const Text out = std::back_inserter(text);
  print_head(out, plan);
  print_bytes(out, plan);
  print_units(out, plan);
  print_traffic(out, plan);
  fmt::format_to(out, "\npromised:\n");
  for (const std::string& promise : plan.promises) fmt::format_to(out, "  {}\n", promise);
  return text;
}

}  // namespace flatshard
