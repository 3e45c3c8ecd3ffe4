// Ranks that were given different models or options are told so before they train on them.
#pragma once

#include <flatshard/ops/optimizer.hpp>

#include "runtime.hpp"

namespace flatshard::detail {

/// Collective over the world; blocks the host. Throws UsageError on every rank when the Plan, the
/// parameters' names, shapes and groups, the optimizer's type or the step's options are not the
/// same on all. Hyper-parameters are not compared. The arena is zero before and after.
void expect_agreement(Runtime& runtime, const Model& model, const Optimizer& optimizer,
                      const Options& options);

}  // namespace flatshard::detail
