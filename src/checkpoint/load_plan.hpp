// Which stored tensor each tensor of the state comes from: pure, the same on every rank.
#pragma once

#include <flatshard/checkpoint/load.hpp>
#include <flatshard/sharder/shard_map.hpp>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catalog.hpp"

namespace flatshard::detail {

enum StoredSet { model_set, optimizer_set };

/// A tensor in one of the sets, and how to read it as the target's row-major elements.
struct Source {
  int set = model_set;
  std::string name;
  DType dtype = DType::Float32;
  bool transpose = false;
  Elements first = 0;    // element of the (transposed) tensor that is the target's first
  Elements columns = 0;  // transposed: of the target, which are the stored rows
  Elements stride = 0;   // transposed: elements of a stored row
};

using LoadPlan = std::map<StateTensor, Source>;

/// Catalogs by StoredSet.
using Catalogs = std::vector<Catalog>;

/// Throw UsageError naming tensors and numbers for what does not fit together.
LoadPlan plan_checkpoint_load(const Plan& plan, const Model& model,
                              std::span<const std::string_view> state_names,
                              const Manifest& manifest, const Catalogs& catalogs,
                              const LoadOptions& options);
LoadPlan plan_tensor_load(const Plan& plan, const Model& model, const Catalog& catalog,
                          const LoadOptions& options);

}  // namespace flatshard::detail
