#include <flatshard/checkpoint/find_checkpoint.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "step_number.hpp"

namespace flatshard {
namespace {

constexpr std::string_view step_prefix = "step-";
constexpr Bytes most_pointer_bytes = 64;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The step that `latest` points to; a line in `passed_over` when it makes no sense.
std::optional<std::int64_t> pointed_to(const Folder& folder,
                                       std::vector<std::string>& passed_over) {
  if (!folder.status(latest_name)) return std::nullopt;
  try {
    const File file = folder.open_for_reading(latest_name);
    std::string text(static_cast<std::size_t>(std::min(file.size(), most_pointer_bytes)), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    if (const auto step = step_of(first_line(text))) return step;
    passed_over.push_back(folder.path_of(latest_name) + ": names no step");
  } catch (const Error& error) {
    passed_over.push_back(error.what());
  }
  return std::nullopt;
}

FoundCheckpoint read_whole(const Folder& checkpoint) {
  FoundCheckpoint found{checkpoint.path(), read_manifest(checkpoint), {}};
  expect_whole(checkpoint, found.manifest);
  return found;
}

std::optional<FoundCheckpoint> read_step(const Folder& folder, std::int64_t step,
                                         std::vector<std::string>& passed_over) {
  const std::string name = step_folder_name(step);
  try {
    FoundCheckpoint found = read_whole(folder.open_folder(name));
    if (found.manifest.step == step) return found;
    passed_over.push_back(
        fmt::format("{}: its manifest is of step {}", folder.path_of(name), found.manifest.step));
  } catch (const Error& error) {
    passed_over.push_back(error.what());
  }
  return std::nullopt;
}

/// Where to look, best first: what `latest` names, then from the highest step down.
std::vector<std::int64_t> candidates(const Folder& folder, std::vector<std::string>& passed_over) {
  std::vector<std::int64_t> steps = list_steps(folder);
  std::reverse(steps.begin(), steps.end());
  if (const auto latest = pointed_to(folder, passed_over)) {
    std::erase(steps, *latest);
    steps.insert(steps.begin(), *latest);
  }
  return steps;
}

void expect_file(const Folder& checkpoint, const FileDigest& file) {
  const auto status = checkpoint.status(file.name);
  const auto fail = [&](const std::string& message) {
    throw ManifestError(checkpoint.path_of(manifest_name), -1, file.name + ": " + message);
  };
  if (!status) fail("the file is missing");
  if (status->kind != FileKind::Regular) fail("not a regular file");
  if (status->bytes != file.bytes)
    fail(fmt::format("the file has {} bytes instead of {}", status->bytes, file.bytes));
}

}  // namespace

std::string step_folder_name(std::int64_t step) { return fmt::format("{}{}", step_prefix, step); }

std::optional<std::int64_t> step_of(const std::string& folder_name) {
  if (!folder_name.starts_with(step_prefix)) return std::nullopt;
  return detail::step_number(std::string_view(folder_name).substr(step_prefix.size()));
}

void expect_whole(const Folder& checkpoint, const Manifest& manifest) {
  for (const FileDigest& file : manifest.files) expect_file(checkpoint, file);
}

std::vector<std::int64_t> list_steps(const Folder& folder) {
  std::vector<std::int64_t> steps;
  for (const FolderEntry& entry : folder.list())
    if (const auto step = step_of(entry.name); step && entry.kind == FileKind::Folder)
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<FoundCheckpoint> find_checkpoint(const std::string& path,
                                               FileOperations& operations) {
  const Folder folder = Folder::open(path, operations);
  if (folder.status(manifest_name)) return read_whole(folder);
  std::vector<std::string> passed_over;
  for (const std::int64_t step : candidates(folder, passed_over))
    if (auto found = read_step(folder, step, passed_over)) {
      found->passed_over = std::move(passed_over);
      return found;
    }
  if (passed_over.empty()) return std::nullopt;
  std::string reasons;
  for (const std::string& line : passed_over) reasons += "; " + line;
  throw ManifestError(path, -1, "no checkpoint is whole" + reasons);
}

}  // namespace flatshard
