#include <fmt/format.h>

#include <iterator>

#include "commands.hpp"
#include "error.hpp"
#include "estimate.hpp"
#include "source.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

using flatshard::Memory;
using flatshard::Plan;
using flatshard::Role;
using Text = std::back_insert_iterator<std::string>;

void print_head(Text out, const PlanQuestion& question, const Plan& plan) {
  fmt::format_to(out, "{}, {}, offload {}, {}: {} ranks", question.strategy, question.precision,
                 question.offload, question.optimizer, plan.world);
  if (plan.replicas > 1)
    fmt::format_to(out, " in {} groups of {}", plan.replicas, plan.shard_group);
  if (plan.request.strategy.secondary_shard)
    fmt::format_to(out, ", second shards over {}", plan.secondary_group);
  const flatshard::Elements frozen = elements_of(plan, false);
  fmt::format_to(out, "\n{} trainable elements", elements_of(plan, true));
  if (frozen > 0) fmt::format_to(out, ", {} frozen", frozen);
  fmt::format_to(out, ", {} units\n", plan.units.size());
}

void print_bytes(Text out, const Plan& plan, Memory memory) {
  fmt::format_to(out, "\nbytes per rank, {}\n", flatshard::name_of(memory));
  flatshard::Bytes sum = 0;
  const auto row = [&](std::string_view name, flatshard::Bytes bytes) {
    fmt::format_to(out, "  {:<22}{:>18}  {:>10}\n", name, bytes, human_bytes(bytes));
  };
  for (int index = 0; index < flatshard::role_count; ++index) {
    const flatshard::Bytes bytes = plan.bytes(static_cast<Role>(index), memory);
    if (bytes > 0) row(flatshard::name_of(static_cast<Role>(index)), bytes);
    sum += bytes;
  }
  row("alignment and skew", plan.bytes(memory) - sum);
  row("all", plan.bytes(memory));
}

void print_memory(Text out, const Plan& plan) {
  print_bytes(out, plan, Memory::Device);
  for (const Memory memory : {Memory::Pinned, Memory::Pageable, Memory::Nvme})
    if (plan.bytes(memory) > 0) print_bytes(out, plan, memory);
  if (plan.pinned_bytes + plan.pageable_bytes + plan.bytes(Memory::Nvme) == 0)
    fmt::format_to(out, "bytes per rank, host memory and NVMe: 0\n");
}

void print_traffic(Text out, const Plan& plan) {
  flatshard::Bytes sum = 0;
  fmt::format_to(out, "\nsent per rank in a step of {} micro-step{}\n", plan.max_micro_steps,
                 plan.max_micro_steps == 1 ? "" : "s");
  for (const flatshard::Traffic& entry : flatshard::traffic(plan, plan.max_micro_steps)) {
    fmt::format_to(out, "  {:<12}{:<16}{:<16}{:>6} calls{:>18}  {:>10}\n", entry.what,
                   entry.collective, entry.over, entry.calls, entry.bytes,
                   human_bytes(entry.bytes));
    sum += entry.bytes;
  }
  fmt::format_to(out, "  {:<56}{:>18}  {:>10}\n", "all", sum, human_bytes(sum));
}

/// Names and seconds of what is known.
std::vector<std::pair<const char*, double>> times_of(const Plan& plan, const Rates& rates) {
  const Estimate times = estimate(plan, plan.max_micro_steps, rates);
  const std::pair<const char*, std::optional<double>> all[] = {
      {"communication", times.communication},
      {"compute", times.compute},
      {"update", times.update},
      {"step_overlapped", times.step_least},
      {"step_serial", times.step_most}};
  std::vector<std::pair<const char*, double>> known;
  for (const auto& [name, seconds] : all)
    if (seconds) known.emplace_back(name, *seconds);
  return known;
}

void print_times(Text out, const Plan& plan, const Rates& rates) {
  const auto known = times_of(plan, rates);
  if (known.empty()) return;
  fmt::format_to(out, "\nestimated seconds of a step\n");
  for (const auto& [name, seconds] : known)
    fmt::format_to(out, "  {:<22}{:>18.6f}\n", name, seconds);
}

std::string table_text(const PlanQuestion& question, const Plan& plan) {
  std::string text;
  const Text out = std::back_inserter(text);
  print_head(out, question, plan);
  print_memory(out, plan);
  print_traffic(out, plan);
  print_times(out, plan, question.rates);
  return text;
}

Map bytes_by_role(const Plan& plan, std::initializer_list<Memory> memories) {
  Map roles;
  for (int index = 0; index < flatshard::role_count; ++index) {
    const auto role = static_cast<Role>(index);
    flatshard::Bytes bytes = 0;
    for (const Memory memory : memories) bytes += plan.bytes(role, memory);
    roles.emplace_back(flatshard::name_of(role), bytes);
  }
  return roles;
}

List traffic_list(const Plan& plan) {
  List list;
  for (const flatshard::Traffic& entry : flatshard::traffic(plan, plan.max_micro_steps))
    list.push_back(map_of({{"what", entry.what},
                           {"collective", entry.collective},
                           {"over", entry.over},
                           {"calls", entry.calls},
                           {"bytes", entry.bytes}}));
  return list;
}

std::string json_text(const PlanQuestion& question, const Plan& plan) {
  Map times;
  for (const auto& [name, seconds] : times_of(plan, question.rates))
    times.emplace_back(name, seconds);
  return write_json(map_of({{"strategy", question.strategy},
                            {"precision", question.precision},
                            {"offload", question.offload},
                            {"optimizer", question.optimizer},
                            {"world", plan.world},
                            {"shard_group", plan.shard_group},
                            {"replicas", plan.replicas},
                            {"secondary_group", plan.secondary_group},
                            {"micro_steps", plan.max_micro_steps},
                            {"trainable_elements", elements_of(plan, true)},
                            {"frozen_elements", elements_of(plan, false)},
                            {"units", static_cast<std::int64_t>(plan.units.size())},
                            {"bytes", map_of({{"device", plan.arena_bytes},
                                              {"host", plan.pinned_bytes + plan.pageable_bytes},
                                              {"nvme", plan.bytes(Memory::Nvme)}})},
                            {"device_roles", bytes_by_role(plan, {Memory::Device})},
                            {"host_roles", bytes_by_role(plan, {Memory::Pinned, Memory::Pageable})},
                            {"nvme_roles", bytes_by_role(plan, {Memory::Nvme})},
                            {"traffic", traffic_list(plan)},
                            {"seconds", std::move(times)}}));
}

}  // namespace

Outcome run_plan(const PlanQuestion& question) {
  if (question.rates.compute.has_value() != (question.rates.tokens > 0))
    throw RequestError("--compute and --tokens need each other");
  if ((question.rates.replicas || question.rates.latency > 0) && !question.rates.link)
    throw RequestError("--link-replicas and --latency need --link");
  const Plan plan = plan_of(question);
  return {question.json ? json_text(question, plan) : table_text(question, plan), success};
}

}  // namespace flatshard_tool
