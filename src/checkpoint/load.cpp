#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/checkpoint/load.hpp>

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "loading.hpp"
#include "restored_state.hpp"
#include "save_parts.hpp"

namespace flatshard {

namespace {

using detail::Catalogs;
using detail::LoadPlan;
using detail::OpenSets;
using safetensors::TensorSet;

FileOperations& operations_of(const LoadOptions& options) {
  return options.operations == nullptr ? posix_file_operations() : *options.operations;
}

/// What the ranks of one load share.
struct Load {
  Load(Engine& target, const LoadOptions& chosen, const char* call)
      : engine(target),
        options(chosen),
        agreement(engine.communicator(), engine.device()),
        failure(agreement, call) {
    FLATSHARD_EXPECTS(
        options.block_bytes >= 4096,
        fmt::format("load: blocks of {} bytes, need at least 4096", options.block_bytes));
  }
  bool reads() const { return options.readers == Readers::EveryRank || agreement.rank() == 0; }

  Engine& engine;
  const LoadOptions& options;
  detail::CommunicatorAgreement agreement;
  detail::SharedFailure failure;
};

/// Opens `paths` where this rank reads; every rank gets the catalogs.
Catalogs open_sets(Load& load, const std::vector<std::string>& paths, OpenSets& sets) {
  Catalogs catalogs(paths.size());
  sets.resize(paths.size());
  load.failure.run([&] {
    for (std::size_t set = 0; set < paths.size(); ++set) {
      if (!load.reads() || paths[set].empty()) continue;
      sets[set].emplace(TensorSet::open(paths[set], {}, safetensors::Mode::Compatible,
                                        operations_of(load.options)));
      catalogs[set] = detail::catalog_of(*sets[set]);
    }
  });
  load.failure.agree();
  if (load.options.readers == Readers::RankZero)
    for (detail::Catalog& catalog : catalogs)
      catalog = detail::catalog_from(load.agreement.from_rank_0(detail::to_text(catalog)));
  return catalogs;
}

/// Rank 0 looks, all get its answer.
FoundCheckpoint find(Load& load, const std::string& path) {
  std::string answer;
  if (load.agreement.rank() == 0)
    load.failure.run([&] {
      auto found = find_checkpoint(path, operations_of(load.options));
      if (!found) throw CheckpointError("load: there is no checkpoint in " + path);
      answer = found->path + '\0' + std::to_string(found->passed_over.size()) + '\0';
      for (const std::string& line : found->passed_over) answer += line + '\0';
      answer += to_json(found->manifest);
    });
  load.failure.agree();
  return detail::found_from(load.agreement.from_rank_0(answer));
}

/// Throws alike on all ranks when what was read is not what the manifest says.
void verify(Load& load, const FoundCheckpoint& found, const LoadPlan& plan,
            const std::vector<detail::RangeDigest>& own) {
  const auto texts = load.agreement.all_gather(detail::to_text(own));
  const detail::CombinedDigests combined(detail::digests_from(texts));
  const std::string damaged = detail::first_damaged(found.manifest, plan, combined);
  if (!damaged.empty())
    throw CheckpointError(
        fmt::format("load: {}: {} does not have the bytes that were saved; the "
                    "parameters are undefined now",
                    found.path, damaged));
}

LoadPlan planned(Load& load, const std::function<LoadPlan()>& plan) {
  LoadPlan result;
  load.failure.run([&] { result = plan(); });
  load.failure.agree();
  return result;
}

/// The point of no return. Reads into the state; says so when it fails half way.
std::vector<detail::RangeDigest> read_into_state(Load& load, const LoadPlan& plan,
                                                 const OpenSets& sets, bool digests) {
  load.engine.begin_state_write("load");
  detail::Loading loading(load.engine, plan, sets, load.options, digests);
  loading.run(load.failure);
  try {
    load.failure.agree();
  } catch (const CheckpointError& error) {
    throw CheckpointError(std::string(error.what()) + "; the parameters are undefined now");
  }
  return loading.digests();
}

/// Paths of the model's and the optimizer's set in a checkpoint; empty: it has none.
std::vector<std::string> set_paths(const FoundCheckpoint& found) {
  std::vector<std::string> paths;
  for (const char* stem : {detail::model_stem, detail::optimizer_stem}) {
    const std::string file = std::string(stem) + ".safetensors", index = file + ".index.json";
    const bool has_file = found.manifest.find_file(file) != nullptr;
    const bool has_index = found.manifest.find_file(index) != nullptr;
    paths.push_back(has_file ? found.path + "/" + file : has_index ? found.path + "/" + index : "");
  }
  return paths;
}

std::vector<std::string> warnings_of(const OpenSets& sets) {
  std::vector<std::string> warnings;
  for (const auto& set : sets)
    if (set) warnings.insert(warnings.end(), set->warnings().begin(), set->warnings().end());
  return warnings;
}

}  // namespace

LoadReport load_checkpoint(Engine& engine, const std::string& path, const LoadOptions& options) {
  engine.begin_state_read("load_checkpoint()");
  Load load(engine, options, "load");
  FoundCheckpoint found = find(load, path);
  OpenSets sets;
  const Catalogs catalogs = open_sets(load, set_paths(found), sets);
  detail::RestoredState state;
  const LoadPlan plan = planned(load, [&] {
    if (options.optimizer_state)
      state = detail::restored_state(engine, found.manifest, options.hyper_parameters);
    return detail::plan_checkpoint_load(engine.plan(), engine.model(),
                                        detail::state_names_of(engine), found.manifest, catalogs,
                                        options);
  });
  const auto digests = read_into_state(load, plan, sets, options.verify_digests);
  if (options.verify_digests) verify(load, found, plan, digests);
  if (options.optimizer_state) {
    engine.restore(state.training);
    if (options.hyper_parameters) engine.set_group_optimizers(state.optimizers);
  }
  std::vector<std::string> warnings = std::move(found.passed_over);
  for (std::string& warning : warnings_of(sets)) warnings.push_back(std::move(warning));
  return {std::move(found.path), std::move(found.manifest), std::move(warnings)};
}

LoadReport load_tensors(Engine& engine, const std::string& path, const LoadOptions& options) {
  engine.begin_state_read("load_tensors()");
  Load load(engine, options, "load");
  OpenSets sets;
  const Catalogs catalogs = open_sets(load, {load.agreement.from_rank_0(path)}, sets);
  const LoadPlan plan = planned(load, [&] {
    return detail::plan_tensor_load(engine.plan(), engine.model(), catalogs[0], options);
  });
  read_into_state(load, plan, sets, false);
  return {path, {}, warnings_of(sets)};
}

}  // namespace flatshard
