// What a manifest means to an engine.
#pragma once

#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/sharder/engine.hpp>

#include <string>
#include <vector>

#include "digests.hpp"
#include "load_plan.hpp"

namespace flatshard::detail {

struct RestoredState {
  TrainingState training;
  std::vector<Optimizer> optimizers;  // per group
};

/// Throws UsageError when the manifest is of another optimizer, when parameters of one flat were
/// updated at different times, and with `hyper_parameters` for another number of groups.
RestoredState restored_state(const Engine& engine, const Manifest& manifest, bool hyper_parameters);

/// The name of a tensor whose digest is not the manifest's; empty: there is none.
std::string first_damaged(const Manifest& manifest, const LoadPlan& plan,
                          const CombinedDigests& combined);

/// Path, number of lines passed over, these lines, manifest.
FoundCheckpoint found_from(const std::string& text);

}  // namespace flatshard::detail
