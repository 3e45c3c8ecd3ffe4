#include "source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "error.hpp"

namespace flatshard_tool {
namespace {

namespace fs = std::filesystem;
using flatshard::Bytes;

/// In a folder without model.safetensors: the only index, else the only safetensors file.
std::string only_candidate(const std::string& folder) {
  std::vector<std::string> indexes, files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".safetensors.index.json")) indexes.push_back(path);
    if (path.ends_with(".safetensors")) files.push_back(path);
  }
  if (indexes.size() == 1) return indexes[0];
  if (indexes.empty() && files.size() == 1) return files[0];
  throw FileError(
      fmt::format("{} holds no checkpoint, no model.safetensors, and {} other safetensors files: "
                  "name one of them",
                  folder, files.size()));
}

std::string file_of(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"/model.safetensors", "/model.safetensors.index.json"})
    if (fs::exists(path + name)) return path;
  return only_candidate(path);
}

/// What the manifest names: "model.safetensors", or its index.
std::optional<std::string> part_path(const flatshard::FoundCheckpoint& found,
                                     const std::string& stem) {
  for (const flatshard::FileDigest& file : found.manifest.files)
    if (file.name == stem + ".safetensors") return found.path + "/" + file.name;
  const std::string index = found.path + "/" + stem + ".safetensors.index.json";
  if (fs::exists(index)) return index;
  return {};
}

}  // namespace

Bytes Source::bytes() const {
  Bytes sum = 0;
  for (const Part& part : parts)
    for (const auto& [name, tensor] : part.set.tensors())
      sum += tensor.entry->end - tensor.entry->begin;
  return sum;
}

std::vector<std::string> Source::warnings() const {
  std::vector<std::string> all;
  if (checkpoint) all = checkpoint->passed_over;
  for (const Part& part : parts)
    all.insert(all.end(), part.set.warnings().begin(), part.set.warnings().end());
  return all;
}

Source open_checkpoint(flatshard::FoundCheckpoint found, safetensors::Mode mode) {
  Source source;
  source.path = found.path;
  for (const char* name : {"model", "optimizer"})
    if (const auto path = part_path(found, name))
      source.parts.push_back({name, *path, safetensors::TensorSet::open(*path, {}, mode)});
  if (source.parts.empty())
    throw FileError(found.path + ": its manifest names no model.safetensors");
  source.checkpoint = std::move(found);
  return source;
}

Source open_source(const std::string& path, safetensors::Mode mode) {
  if (fs::is_directory(path))
    if (auto found = flatshard::find_checkpoint(path))
      return open_checkpoint(std::move(*found), mode);
  const std::string file = file_of(path);
  Source source;
  source.path = path;
  source.parts.push_back({"model", file, safetensors::TensorSet::open(file, {}, mode)});
  return source;
}

std::string human_bytes(Bytes bytes) {
  constexpr const char* units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes);
  int unit = -1;
  while (amount >= 999.995 && unit < 5) {
    amount /= 1000;
    ++unit;
  }
  return fmt::format("{:.2f} {}", amount, units[unit]);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

}  // namespace flatshard_tool
