#pragma once

#include <flatshard/sharder/plan.hpp>

#include <optional>
#include <string>

namespace flatshard_tool {

/// Rates of a machine; what is not given is not estimated.
struct Rates {
  std::optional<double> link;      // bytes per second that a rank sends
  std::optional<double> replicas;  // the same between shard groups; none: as link
  double latency = 0;              // seconds per collective
  std::optional<double> memory;    // bytes per second of a rank's memory
  std::optional<double> compute;   // floating-point operations per second of a rank
  std::int64_t tokens = 0;         // that a rank processes in a micro-step
};

struct PlanQuestion {
  std::string path, gpt, shapes;  // one of the three
  std::string strategy = "full_shard";
  std::string precision = "fp32";
  std::string optimizer = "adamw";
  std::string offload = "none";
  std::string accumulation = "running", reduce, wrap = "module", prefetch_backward = "pre";
  int world = 1;
  flatshard::Options options;
  Rates rates;
  bool json = false;
};

/// What make_plan is asked: what a run with these choices asks too.
struct PlannedRun {
  flatshard::Model model;
  flatshard::PlanRequest request;
  flatshard::Options options;
};

/// Throws RequestError for names that do not exist and for what is not built.
PlannedRun planned_run(const PlanQuestion& question);
/// make_plan of it.
flatshard::Plan plan_of(const PlanQuestion& question);

}  // namespace flatshard_tool
