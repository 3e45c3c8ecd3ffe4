#include "restored_state.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/sharder/shard_map.hpp>

#include <map>

#include "save_layout.hpp"

namespace flatshard::detail {

namespace {

/// Time steps by stored name.
class Times {
 public:
  explicit Times(const Manifest& manifest)
      : common_(manifest.optimizer->time),
        others_(manifest.optimizer->times.begin(), manifest.optimizer->times.end()),
        owners_(manifest.ties.begin(), manifest.ties.end()) {}

  std::int64_t of(const ParameterSpec& parameter) const {
    std::vector<std::string> names{parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    for (const std::string& name : names) {
      const auto owner = owners_.find(name);
      const auto found = others_.find(owner == owners_.end() ? name : owner->second);
      if (found != others_.end()) return found->second;
    }
    return common_;
  }

 private:
  std::int64_t common_;
  std::map<std::string, std::int64_t> others_;
  std::map<std::string, std::string> owners_;  // by alias
};

std::vector<Optimizer> optimizers_of(const Engine& engine, const OptimizerRecord& record) {
  const std::vector<Optimizer>& own = engine.group_optimizers();
  FLATSHARD_EXPECTS(record.groups.size() == own.size(),
                    fmt::format("the checkpoint has hyper-parameters of {} groups, not {} "
                                "(hyper_parameters = false would keep the Sharder's)",
                                record.groups.size(), own.size()));
  std::vector<Optimizer> optimizers;
  for (std::size_t group = 0; group < own.size(); ++group) {
    std::vector<HyperParameter> values;
    for (const auto& [name, value] : record.groups[group].values) values.push_back({name, value});
    optimizers.push_back(own[group].with(values));
  }
  return optimizers;
}

}  // namespace

RestoredState restored_state(const Engine& engine, const Manifest& manifest,
                             bool hyper_parameters) {
  FLATSHARD_EXPECTS(manifest.optimizer.has_value(),
                    "the checkpoint holds a model only (optimizer_state = false would take it)");
  const std::string_view own = engine.group_optimizers().front().name();
  FLATSHARD_EXPECTS(
      manifest.optimizer->name == own,
      fmt::format("the checkpoint is of optimizer '{}', not '{}'", manifest.optimizer->name, own));
  RestoredState state;
  state.training = engine.training_state();
  state.training.steps = manifest.step;
  const Times times(manifest);
  state.training.times = flat_times(engine.plan(), engine.model(), [&](int parameter) {
    return times.of(engine.model().parameters()[static_cast<std::size_t>(parameter)]);
  });
  if (manifest.seed) state.training.seed = *manifest.seed;
  if (manifest.loss_scaler && carries_on(*manifest.loss_scaler, state.training.loss_scaler))
    state.training.loss_scaler.state = manifest.loss_scaler->state;
  if (hyper_parameters) state.optimizers = optimizers_of(engine, *manifest.optimizer);
  return state;
}

std::string first_damaged(const Manifest& manifest, const LoadPlan& plan,
                          const CombinedDigests& combined) {
  std::map<std::pair<int, std::string>, const TensorDigest*> expected;
  for (const FileDigest& file : manifest.files) {
    const int set = file.name.starts_with(optimizer_stem) ? optimizer_set : model_set;
    for (const TensorDigest& tensor : file.tensors) expected[{set, tensor.name}] = &tensor;
  }
  int index = 0;
  for (const auto& [tensor, source] : plan) {
    const auto found = expected.find({source.set, source.name});
    if (found == expected.end()) return "'" + source.name + "', which the manifest does not list,";
    const Bytes bytes = numel_of(found->second->shape) * size_of(source.dtype);
    if (combined.of(source.set, index++, bytes) != found->second->crc32c)
      return "'" + source.name + "'";
  }
  return {};
}

FoundCheckpoint found_from(const std::string& text) {
  std::size_t at = 0;
  const auto line = [&] {
    const std::size_t end = text.find('\0', at);
    std::string taken = text.substr(at, end - at);
    at = end + 1;
    return taken;
  };
  FoundCheckpoint found;
  found.path = line();
  const int passed_over = std::stoi(line());
  for (int i = 0; i < passed_over; ++i) found.passed_over.push_back(line());
  found.manifest = from_json(std::string_view(text).substr(at));
  return found;
}

}  // namespace flatshard::detail
