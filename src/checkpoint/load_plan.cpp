#include "load_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <flatshard/core/error.hpp>
#include <flatshard/layout/nearest_names.hpp>

#include <algorithm>
#include <set>

#include "save_layout.hpp"

namespace flatshard::detail {

namespace {

using Kind = StateTensor::Kind;

std::string shape_text(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

/// Shared by both kinds of load: looks up, checks, remembers what was taken.
class Planner {
 public:
  Planner(const Plan& plan, const Model& model, const Catalogs& catalogs,
          const LoadOptions& options)
      : plan_(plan), model_(model), catalogs_(catalogs), options_(options) {}

  const CatalogEntry* find(int set, const std::string& name) const {
    const Catalog& catalog = catalogs_[static_cast<std::size_t>(set)];
    const auto found = catalog.find(name);
    return found == catalog.end() ? nullptr : &found->second;
  }

  /// `target` will come from `source`, which is there.
  void take(const StateTensor& target, int set, const TensorSource& source) {
    const CatalogEntry& entry = *find(set, source.name);
    Source taken{set, source.name, checked_dtype(target, source.name, entry)};
    expect_shape(target, source, entry.shape);
    const Shape& shape = shape_of_tensor(model_, target);
    if (!shape.empty()) taken.columns = numel_of(std::span(shape).subspan(1));
    taken.transpose = source.transpose;
    taken.first = source.first_row * taken.columns;
    if (source.transpose) taken.stride = entry.shape[1];
    load_[target] = taken;
    mark(set, source.name);
  }
  void mark(int set, const std::string& name) { taken_.insert({set, name}); }

  void missing(int set, const std::string& what, const std::string& name) const {
    if (options_.allow_missing && set == model_set) return;
    std::vector<std::string> names;
    for (const auto& [stored, entry] : catalogs_[static_cast<std::size_t>(set)])
      names.push_back(stored);
    throw UsageError(fmt::format("{} '{}' is not stored{}", what, name, near(name, names)),
                     {__FILE__, __LINE__});
  }

  LoadPlan finish(int sets) {
    if (!options_.allow_unused)
      for (int set = 0; set < sets; ++set)
        for (const auto& [name, entry] : catalogs_[static_cast<std::size_t>(set)])
          FLATSHARD_EXPECTS(taken_.count({set, name}) == 1,
                            fmt::format("nothing takes the stored tensor '{}' {} (allow_unused "
                                        "would leave it)",
                                        name, shape_text(entry.shape)));
    return std::move(load_);
  }

 private:
  static std::string near(const std::string& name, const std::vector<std::string>& names) {
    const std::vector<std::string> nearest = nearest_names(name, names);
    return nearest.empty() ? "" : fmt::format("; near it: {}", fmt::join(nearest, ", "));
  }

  DType checked_dtype(const StateTensor& target, const std::string& name,
                      const CatalogEntry& entry) const {
    const auto stored = info(entry.type).dtype;
    const DType own = dtype_of_tensor(plan_, model_, target);
    FLATSHARD_EXPECTS(stored && is_floating(*stored) == is_floating(own),
                      fmt::format("stored tensor '{}' is {} and cannot become {}", name,
                                  name_of(entry.type), flatshard::name_of(own)));
    FLATSHARD_EXPECTS(target.kind != Kind::Buffer || *stored == own,
                      fmt::format("buffer '{}' is {}, and stored as {}", name,
                                  flatshard::name_of(own), name_of(entry.type)));
    FLATSHARD_EXPECTS(options_.allow_downcast || holds_exactly(own, *stored),
                      fmt::format("stored tensor '{}' is {}; {} cannot hold it exactly "
                                  "(allow_downcast would round)",
                                  name, name_of(entry.type), flatshard::name_of(own)));
    return *stored;
  }

  void expect_shape(const StateTensor& target, const TensorSource& source,
                    const Shape& stored) const {
    const Shape& shape = shape_of_tensor(model_, target);
    Shape have = stored;
    FLATSHARD_EXPECTS(!source.transpose || stored.size() == 2,
                      fmt::format("stored tensor '{}' {} is to be transposed and has not two "
                                  "dimensions",
                                  source.name, shape_text(stored)));
    if (source.transpose) std::swap(have[0], have[1]);
    if (source.rows) {
      FLATSHARD_EXPECTS(
          !have.empty() && !shape.empty() && source.first_row >= 0 && source.first_row <= have[0] &&
              shape[0] <= have[0] - source.first_row,
          fmt::format("stored tensor '{}' {} has no rows from {} on for {}", source.name,
                      shape_text(have), source.first_row, shape_text(shape)));
      have[0] = shape[0];
    }
    FLATSHARD_EXPECTS(have == shape && (source.rows || source.first_row == 0),
                      fmt::format("stored tensor '{}' has shape {}, not {}", source.name,
                                  shape_text(have), shape_text(shape)));
  }

  const Plan& plan_;
  const Model& model_;
  const Catalogs& catalogs_;
  const LoadOptions& options_;
  LoadPlan load_;
  std::set<std::pair<int, std::string>> taken_;
};

/// The stored name of a parameter: its own, an alias, or what one of these is tied to.
class StoredNames {
 public:
  StoredNames(const Planner& planner, const Manifest& manifest)
      : planner_(planner), owners_(manifest.ties.begin(), manifest.ties.end()) {}

  /// Empty: not stored.
  std::string of(const ParameterSpec& parameter) const {
    std::string stored;
    std::vector<std::string> names{parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    for (const std::string& name : names) {
      const auto owner = owners_.find(name);
      const std::string& candidate = owner == owners_.end() ? name : owner->second;
      if (candidate == stored || planner_.find(model_set, candidate) == nullptr) continue;
      FLATSHARD_EXPECTS(stored.empty(),
                        fmt::format("parameter '{}' is tied to what is stored as two tensors, "
                                    "'{}' and '{}'",
                                    parameter.name, stored, candidate));
      stored = candidate;
    }
    return stored;
  }

 private:
  const Planner& planner_;
  std::map<std::string, std::string> owners_;  // by alias
};

void expect_optimizer(const Manifest& manifest, std::span<const std::string_view> state_names) {
  FLATSHARD_EXPECTS(manifest.optimizer.has_value(),
                    "the checkpoint holds a model only (optimizer_state = false would take it)");
  const std::vector<std::string>& stored = manifest.optimizer->states;
  FLATSHARD_EXPECTS(
      std::equal(stored.begin(), stored.end(), state_names.begin(), state_names.end()),
      fmt::format("the checkpoint is of optimizer '{}' with states {}, not {}",
                  manifest.optimizer->name, fmt::join(stored, ", "), fmt::join(state_names, ", ")));
}

/// The model's file, unless another dtype was saved there than is needed and the master is kept.
void take_parameter(Planner& planner, const StateTensor& tensor, const std::string& stored,
                    DType own) {
  const auto in_model = info(planner.find(model_set, stored)->type).dtype;
  const std::string master = master_name(stored);
  const bool has_master = planner.find(optimizer_set, master) != nullptr;
  planner.mark(model_set, stored);
  if (has_master) planner.mark(optimizer_set, master);
  if (has_master && in_model != own)
    planner.take(tensor, optimizer_set, {master});
  else
    planner.take(tensor, model_set, {stored});
}

}  // namespace

LoadPlan plan_checkpoint_load(const Plan& plan, const Model& model,
                              std::span<const std::string_view> state_names,
                              const Manifest& manifest, const Catalogs& catalogs,
                              const LoadOptions& options) {
  if (options.optimizer_state) expect_optimizer(manifest, state_names);
  Planner planner(plan, model, catalogs, options);
  const StoredNames names(planner, manifest);
  for (const StateTensor& tensor : state_tensors(plan, model)) {
    const std::string own = name_of_tensor(model, tensor, state_names);
    if (tensor.kind == Kind::Buffer) {
      if (planner.find(model_set, own) == nullptr)
        planner.missing(model_set, "buffer", own);
      else
        planner.take(tensor, model_set, {own});
      continue;
    }
    const std::string stored = names.of(model.parameters()[static_cast<std::size_t>(tensor.index)]);
    if (tensor.kind == Kind::State && !options.optimizer_state) continue;
    if (stored.empty()) {
      planner.missing(tensor.kind == Kind::State ? optimizer_set : model_set, "tensor", own);
      continue;
    }
    if (tensor.kind == Kind::Parameter) {
      take_parameter(planner, tensor, stored, dtype_of_tensor(plan, model, tensor));
      continue;
    }
    const std::string name =
        stored + "." + std::string(state_names[static_cast<std::size_t>(tensor.state)]);
    if (planner.find(optimizer_set, name) == nullptr)
      planner.missing(optimizer_set, "optimizer state", name);
    planner.take(tensor, optimizer_set, {name});
  }
  return planner.finish(options.optimizer_state ? 2 : 1);
}

LoadPlan plan_tensor_load(const Plan& plan, const Model& model, const Catalog& catalog,
                          const LoadOptions& options) {
  const Catalogs catalogs{catalog, {}};
  Planner planner(plan, model, catalogs, options);
  for (const StateTensor& tensor : state_tensors(plan, model)) {
    if (tensor.kind == Kind::State) continue;
    const std::string own = name_of_tensor(model, tensor, {});
    TensorSource source = options.source ? options.source(own) : TensorSource{own};
    if (!options.source && tensor.kind == Kind::Parameter)
      for (const std::string& alias :
           model.parameters()[static_cast<std::size_t>(tensor.index)].aliases) {
        if (planner.find(model_set, source.name) == nullptr) source.name = alias;
        planner.mark(model_set, alias);  // a second copy of what is tied
      }
    if (planner.find(model_set, source.name) == nullptr)
      planner.missing(model_set, tensor.kind == Kind::Buffer ? "buffer" : "parameter", source.name);
    else
      planner.take(tensor, model_set, source);
  }
  return planner.finish(1);
}

}  // namespace flatshard::detail
