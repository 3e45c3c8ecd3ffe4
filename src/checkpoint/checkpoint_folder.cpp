#include <flatshard/checkpoint/checkpoint_folder.hpp>
#include <flatshard/checkpoint/find_checkpoint.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <ctime>
#include <random>

#include "step_number.hpp"

namespace flatshard {
namespace {

constexpr std::string_view stage_prefix = ".tmp-", trash_prefix = ".trash-";
constexpr const char* lock_name = ".lock";
constexpr const char* part_suffix = ".part";  // of a file that is not complete yet
constexpr std::int64_t seconds_of_a_day = 86400;

// Never 0, which stands for no save.
std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device() | 1;
}

std::string tagged_name(std::string_view prefix, std::int64_t step, std::uint64_t save_id) {
  return fmt::format("{}{}-{:016x}", prefix, step, save_id);
}

std::optional<StageName> parse_tagged(std::string_view prefix, const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(prefix.size());
  const auto dash = rest.find('-');
  if (dash == rest.npos) return std::nullopt;
  const auto step = detail::step_number(rest.substr(0, dash));
  const auto save_id = detail::save_number(rest.substr(dash + 1));
  return step && save_id ? std::optional(StageName{*step, *save_id}) : std::nullopt;
}

bool is_leftover(const FolderEntry& entry) {
  return entry.kind == FileKind::Folder &&
         (parse_tagged(stage_prefix, entry.name) || parse_tagged(trash_prefix, entry.name));
}

bool has_no_locks(int code) { return code == ENOSYS || code == EOPNOTSUPP || code == ENOLCK; }

std::optional<File> lock_of(const Folder& folder) {
  File file = folder.open_or_create_file(lock_name);
  try {
    if (file.try_lock()) return file;
  } catch (const IoError& error) {
    if (has_no_locks(error.code())) return std::nullopt;
    throw;
  }
  throw CheckpointError(folder.path() + ": another save is writing into this folder");
}

/// The file `name` with this text, durably and in one step.
void write_file(const Folder& folder, const std::string& name, std::string_view text) {
  const std::string part = name + part_suffix;
  if (folder.status(part)) folder.remove_file(part);
  File file = folder.create(part);
  file.write(0, std::as_bytes(std::span(text)));
  file.synchronize();
  file.close();
  folder.rename(part, name, Existing::Replace);
  folder.synchronize();
}

void expect_free_space(const Folder& folder, Bytes bytes, Bytes reserve) {
  const Bytes free = folder.free_bytes();
  if (free - reserve < bytes)
    throw CheckpointError(
        fmt::format("{}: {} bytes are to be written and {} to stay free, but only "
                    "{} are free",
                    folder.path(), bytes, reserve, free));
}

void expect_step_is_free(const Folder& folder, std::int64_t step, ExistingStep existing) {
  const std::string name = step_folder_name(step);
  const auto found = folder.status(name);
  if (!found || (found->kind == FileKind::Folder && existing == ExistingStep::Replace)) return;
  throw CheckpointError(folder.path_of(name) + ": exists already");
}

}  // namespace

std::string StageName::folder_name() const { return tagged_name(stage_prefix, step, save_id); }

std::optional<StageName> StageName::parse(const std::string& folder_name) {
  return parse_tagged(stage_prefix, folder_name);
}

Folder enter_stage(const std::string& folder, const StageName& stage, FileOperations& operations) {
  return Folder::open(folder, operations).open_folder(stage.folder_name());
}

CheckpointFolder::CheckpointFolder(const std::string& path, FileOperations& operations)
    : folder_(Folder::open_or_create(path, operations)), lock_(lock_of(folder_)) {
  sweep();
}

void CheckpointFolder::sweep() {
  const std::int64_t yesterday = std::time(nullptr) - seconds_of_a_day;
  bool is_durable = false;
  for (const FolderEntry& entry : folder_.list()) try {
      if (!is_leftover(entry)) continue;
      const auto status = lock_ ? std::nullopt : folder_.status(entry.name);
      if (status && status->modified > yesterday) continue;
      // A leftover may be what an exchange, not yet durable, has replaced.
      if (!is_durable) folder_.synchronize();
      is_durable = true;
      folder_.remove_tree(entry.name);
    } catch (const IoError& error) {
      warnings_.push_back(error.what());
    }
}

StageName CheckpointFolder::begin(std::int64_t step, Bytes bytes, Bytes reserve,
                                  ExistingStep existing) const {
  FLATSHARD_EXPECTS(step >= 0 && bytes >= 0 && reserve >= 0,
                    fmt::format("save of step {} with {} bytes and a reserve of {}: negative", step,
                                bytes, reserve));
  expect_step_is_free(folder_, step, existing);
  if (bytes > 0) expect_free_space(folder_, bytes, reserve);
  const StageName stage{step, random_number()};
  folder_.create_folder(stage.folder_name());
  try {
    folder_.synchronize();
  } catch (const IoError&) {
    discard(stage);
    throw;
  }
  return stage;
}

void CheckpointFolder::seal(const StageName& stage, Manifest manifest) const {
  manifest.step = stage.step;
  manifest.save_id = fmt::format("{:016x}", stage.save_id);
  const Folder folder = folder_.open_folder(stage.folder_name());
  expect_whole(folder, manifest);
  write_file(folder, manifest_name, to_json(manifest));
}

void CheckpointFolder::publish(const StageName& stage, ExistingStep existing) const {
  const std::string name = step_folder_name(stage.step);
  const bool replaces = existing == ExistingStep::Replace && folder_.status(name);
  folder_.rename(stage.folder_name(), name, replaces ? Existing::Exchange : Existing::Refuse);
  folder_.synchronize();
  point_to(stage.step);
  if (replaces) discard(stage);  // what it replaced has got this name
}

void CheckpointFolder::point_to(std::int64_t step) const {
  write_file(folder_, latest_name, step_folder_name(step) + "\n");
}

std::vector<std::string> CheckpointFolder::retain(const Retention& retention,
                                                  std::int64_t saved) const {
  std::vector<std::string> warnings;
  try {
    std::vector<std::int64_t> steps = list_steps(folder_);
    // What has no manifest is no checkpoint: neither counted nor touched.
    std::erase_if(steps, [&](std::int64_t step) {
      return !folder_.open_folder(step_folder_name(step)).status(manifest_name);
    });
    for (const std::int64_t step : steps_to_remove(retention, steps, saved))
      trash(step_folder_name(step));
  } catch (const IoError& error) {
    warnings.push_back(error.what());
  }
  return warnings;
}

// Deleted under another name: half deleted, it must not look like a checkpoint.
void CheckpointFolder::trash(const std::string& name) const {
  const std::string hidden = tagged_name(trash_prefix, step_of(name).value(), random_number());
  folder_.rename(name, hidden, Existing::Refuse);
  folder_.synchronize();
  folder_.remove_tree(hidden);
}

void CheckpointFolder::discard(const StageName& stage) const noexcept {
  try {
    folder_.remove_tree(stage.folder_name());
  } catch (const std::exception&) {
    // The next sweep takes it.
  }
}

}  // namespace flatshard
