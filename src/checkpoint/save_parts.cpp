#include "save_parts.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/io/crc32c.hpp>

#include <map>

namespace flatshard::detail {

namespace {

std::string strategy_of(const Plan& plan) {
  return fmt::format("shard group {}, replicas {}{}", plan.shard_group, plan.replicas,
                     plan.request.strategy.gradients_sharded ? ", gradients sharded" : "");
}

std::string precision_of(const Plan& plan) {
  const PrecisionTraits& roles = plan.request.precision;
  return fmt::format("master {}, compute {}, reduce {}, accumulate {}, state {}",
                     name_of(roles.master), name_of(roles.compute), name_of(roles.reduce),
                     name_of(roles.accumulate), name_of(roles.state));
}

HyperParameters record_of(const Optimizer& optimizer) {
  HyperParameters record;
  for (const HyperParameter& parameter : optimizer.hyper_parameters())
    record.values.emplace_back(parameter.name, parameter.value);
  return record;
}

/// Time steps of parameters: the most frequent one, and who has another.
void record_times(OptimizerRecord& record, const Engine& engine, const TrainingState& state) {
  const Plan& plan = engine.plan();
  std::map<std::int64_t, std::int64_t> parameters;  // of each time
  const auto time_of = [&](std::size_t parameter) {
    return state.times[static_cast<std::size_t>(plan.flat_of_parameter[parameter])];
  };
  const auto trains = [&](std::size_t parameter) {
    return plan.flats[static_cast<std::size_t>(plan.flat_of_parameter[parameter])].requires_grad;
  };
  const std::vector<ParameterSpec>& specs = engine.model().parameters();
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (trains(i)) ++parameters[time_of(i)];
  std::int64_t most = 0;
  for (const auto& [time, count] : parameters)
    if (count > most) record.time = time, most = count;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (trains(i) && time_of(i) != record.time)
      record.times.emplace_back(specs[i].name, time_of(i));
}

OptimizerRecord optimizer_record(const Engine& engine, const TrainingState& state) {
  OptimizerRecord record;
  const std::vector<Optimizer>& groups = engine.group_optimizers();
  record.name = groups.front().name();
  for (const std::string_view name : groups.front().state_names()) record.states.emplace_back(name);
  for (const Optimizer& group : groups) record.groups.push_back(record_of(group));
  record_times(record, engine, state);
  return record;
}

FileDigest digest_of(const SaveLayout::PlannedFile& file, int index,
                     const CombinedDigests& combined) {
  FileDigest digest;
  digest.name = file.name;
  digest.bytes = file.header.file_bytes;
  digest.header_bytes = file.header.data_begin;
  digest.header_crc32c = crc32c(std::as_bytes(std::span(file.head)));
  for (std::size_t position = 0; position < file.header.tensors.size(); ++position) {
    const safetensors::TensorEntry& entry = file.header.tensors[position];
    const auto crc = combined.of(index, static_cast<int>(position), entry.end - entry.begin);
    if (!crc)
      throw CheckpointError(fmt::format("save: tensor '{}' of {} was not written exactly once",
                                        entry.name, file.name));
    digest.tensors.push_back({entry.name, std::string(name_of(entry.type)), entry.shape, *crc});
  }
  return digest;
}

}  // namespace

void validate(const SaveOptions& options) {
  FLATSHARD_EXPECTS(!options.folder.empty(), "save: no folder was given");
  FLATSHARD_EXPECTS(!options.model_dtype || is_floating(*options.model_dtype),
                    fmt::format("save: parameters cannot be stored as {}",
                                name_of(options.model_dtype.value_or(DType::UInt8))));
  FLATSHARD_EXPECTS(options.max_file_bytes >= 0 && options.reserve >= 0,
                    fmt::format("save: max_file_bytes {} or reserve {} is negative",
                                options.max_file_bytes, options.reserve));
  FLATSHARD_EXPECTS(
      options.block_bytes >= 4096,
      fmt::format("save: blocks of {} bytes, need at least 4096", options.block_bytes));
}

std::vector<std::string_view> state_names_of(const Engine& engine) {
  const auto names = engine.group_optimizers().front().state_names();
  return {names.begin(), names.end()};
}

SaveLayout plan_save(const Engine& engine, const SaveOptions& options) {
  validate(options);
  return plan_save(engine.plan(), engine.model(), state_names_of(engine), options);
}

Manifest describe(const Engine& engine, const SaveOptions& options) {
  const TrainingState state = engine.training_state();
  Manifest manifest;
  manifest.step = state.steps;
  manifest.world = engine.plan().world;
  manifest.strategy = strategy_of(engine.plan());
  manifest.precision = precision_of(engine.plan());
  if (options.optimizer_state) {
    manifest.optimizer = optimizer_record(engine, state);
    manifest.seed = state.seed;
    if (engine.plan().request.precision.loss_scaling != LossScaling::Off)
      manifest.loss_scaler = state.loss_scaler;
  }
  for (const ParameterSpec& parameter : engine.model().parameters())
    for (const std::string& alias : parameter.aliases)
      manifest.ties.emplace_back(alias, parameter.name);
  manifest.user = options.user;
  return manifest;
}

Manifest with_files(Manifest manifest, const SaveLayout& layout, std::vector<RangeDigest> ranges) {
  const CombinedDigests combined(std::move(ranges));
  for (std::size_t index = 0; index < layout.files.size(); ++index)
    manifest.files.push_back(digest_of(layout.files[index], static_cast<int>(index), combined));
  for (const SaveLayout::Index& index : layout.indexes) {
    const auto bytes = static_cast<Bytes>(index.text.size());
    manifest.files.push_back(
        {index.name, bytes, bytes, crc32c(std::as_bytes(std::span(index.text))), {}});
  }
  return manifest;
}

CommitOptions commit_options(const SaveOptions& options, const SaveLayout& layout,
                             std::int64_t step) {
  CommitOptions commit;
  commit.folder = options.folder;
  commit.step = step;
  commit.bytes = layout.bytes();
  commit.reserve = options.reserve;
  commit.existing = options.existing;
  commit.retention = options.retention;
  return commit;
}

FileOperations& operations_of(const SaveOptions& options) {
  return options.operations == nullptr ? posix_file_operations() : *options.operations;
}

}  // namespace flatshard::detail
