#include "checkpoints.hpp"

#include <flatshard/checkpoint/load.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace train_gpt {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

/// What decides, beside the state, how training goes on: the data's position follows from the step.
Entries decisive_options(const Options& o) {
  return {{"--data", o.data},
          {"--batch", fmt::format("{}", o.batch)},
          {"--seed", fmt::format("{}", o.seed)},
          {"--lr", fmt::format("{}", o.lr)},
          {"--weight-decay", fmt::format("{}", o.weight_decay)},
          {"--clip", fmt::format("{}", o.clip)}};
}

/// Of an option in a list; none: it is not there.
std::optional<std::string> value_of(const Entries& entries, const std::string& option) {
  for (const auto& entry : entries)
    if (entry.first == option) return entry.second;
  return std::nullopt;
}

void tell_differences(const Entries& saved, const Entries& now) {
  for (const auto& entry : now)
    if (const auto before = value_of(saved, entry.first); before && *before != entry.second)
      fmt::print(stderr, "train_gpt: going on with {} '{}'; the checkpoint was made with '{}'\n",
                 entry.first, entry.second, *before);
}

flatshard::SaveOptions save_options(const Options& options) {
  flatshard::SaveOptions save;
  save.folder = options.save;
  save.existing = flatshard::ExistingStep::Replace;  // of a run that is done over from further back
  save.user = decisive_options(options);
  return save;
}

}  // namespace

void make_save_folder(const Options& options) {
  if (options.save.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options.save, error);
  if (error) throw OptionError(fmt::format("--save {}: {}", options.save, error.message()));
}

Checkpoints::Checkpoints(const Options& options, flatshard::Engine& engine)
    : options_(options), engine_(engine) {
  if (!options.save.empty())
    saver_ = std::make_unique<flatshard::AsyncSaver>(engine, save_options(options));
}

std::int64_t Checkpoints::resume() {
  if (options_.resume.empty()) return 0;
  flatshard::LoadOptions load;
  load.hyper_parameters = false;  // the command line's count
  const flatshard::LoadReport report = flatshard::load_checkpoint(engine_, options_.resume, load);
  const std::int64_t made = report.manifest.step;
  if (made > options_.steps)
    throw OptionError(fmt::format("--steps {} is the total, but {} has {} steps already",
                                  options_.steps, report.path, made));
  if (engine_.communicator().rank() == 0)
    tell_differences(report.manifest.user, decisive_options(options_));
  return made;
}

void Checkpoints::after_step(std::int64_t steps) {
  if (saver_ == nullptr) return;
  const bool is_due = options_.save_every > 0 && steps % options_.save_every == 0;
  if (is_due || steps == options_.steps) saver_->save();
}

void Checkpoints::finish() {
  if (saver_ != nullptr) saver_->wait();
}

}  // namespace train_gpt
