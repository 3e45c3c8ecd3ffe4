#pragma once

#include <flatshard/sharder/plan.hpp>

#include <optional>

#include "plan_request.hpp"

namespace flatshard_tool {

/// Seconds of one step of `micro_steps` micro-steps on one rank, from the Plan and a machine's
/// rates; what its rates do not allow to say is absent.
///   communication  sum over collectives of bytes sent / link + calls * latency
///                  (between replicas: their own link)
///   compute        6 * trainable + 4 * frozen parameters, * tokens * micro-steps / compute: per
///                  parameter and token 2 operations forward, 2 backward to the inputs, 2 to the
///                  weights; attention's own products and recomputing are not in
///   update         bytes that the step reads and writes / memory, per trainable element of the own
///                  slice: the gradient twice (norm, step), master and states read and written, the
///                  compute copy written where there is one
///   step           from max(compute, communication) + update, all hidden behind the other, to
///                  their sum, nothing hidden
struct Estimate {
  std::optional<double> communication, compute, update;
  std::optional<double> step_least, step_most;  // when all three are there
};

Estimate estimate(const flatshard::Plan& plan, int micro_steps, const Rates& rates);

/// Trainable and frozen elements of the model, padding not counted.
flatshard::Elements elements_of(const flatshard::Plan& plan, bool trainable);

/// What the step reads and writes on one rank, in bytes.
flatshard::Bytes update_bytes(const flatshard::Plan& plan);

}  // namespace flatshard_tool
