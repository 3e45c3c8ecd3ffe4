#include "set_opener.hpp"

#include "json_text.hpp"
#include "text_of_file.hpp"

#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace flatshard::safetensors {
namespace {

using flatshard::detail::in_quotes;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

[[noreturn]] void refuse(Fault fault, const std::string& message, const std::string& path,
                         const std::string& tensor = {}) {
  throw FormatError(fault, message, {path, -1, tensor}, {__FILE__, __LINE__});
}

std::optional<Folder> folder_at(const std::string& path, FileOperations& operations) {
  try {
    return Folder::open(path, operations);
  } catch (const IoError& error) {
    if (error.code() != ENOTDIR) throw;
    return std::nullopt;
  }
}

/// N of "...-of-N.safetensors" with N of five digits; nothing for other names.
std::optional<std::size_t> announced_count(std::string_view name) {
  constexpr std::string_view before = "-of-", after = ".safetensors";
  constexpr std::size_t digits = 5;
  if (!name.ends_with(after)) return std::nullopt;
  name.remove_suffix(after.size());
  if (name.size() < before.size() + digits) return std::nullopt;
  const std::string number(name.substr(name.size() - digits));
  name.remove_suffix(digits);
  const bool all_digits = number.find_first_not_of("0123456789") == number.npos;
  if (!all_digits || !name.ends_with(before)) return std::nullopt;
  return std::stoul(number);
}

}  // namespace

void SetOpener::open(const std::filesystem::path& path) {
  if (const auto folder = folder_at(path.string(), operations_)) {
    open_folder(*folder);
  } else if (path.extension() == ".json") {
    open_index(path.string());
  } else {
    add(path.filename().string(), File::open_for_reading(path.string(), operations_));
  }
}

void SetOpener::open_folder(const Folder& folder) {
  if (folder.status(single_name)) {
    const std::string path = folder.path_of(single_name);
    add(single_name, File::open_for_reading(path, operations_));
  } else if (folder.status(index_name)) {
    open_index(folder.path_of(index_name));
  } else {
    const std::string wanted = std::string(single_name) + " nor " + index_name;
    refuse(Fault::MissingFile, "there is neither " + wanted, folder.path());
  }
}

void SetOpener::add(const std::string& name, File file) {
  Header header = read_header(file, limits_, mode_);
  for (const std::string& warning : header.warnings)
    warnings.push_back(file.path() + ": " + warning);
  files.push_back({name, std::move(header)});
  opened.push_back(std::move(file));
}

void SetOpener::open_index(const std::string& path) {
  index_path_ = path;
  const File file = File::open_for_reading(path, operations_);
  const Bytes bytes = file.size();
  if (bytes > limits_.index_bytes)
    refuse(Fault::IndexTooLarge, "an index of " + std::to_string(bytes) + " bytes", path);
  const std::string text = flatshard::detail::text_of_file(file, 0, bytes);
  const ShardIndex index = parse_index(std::as_bytes(std::span(text)), limits_, path);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const Folder folder = Folder::open(parent.empty() ? "." : parent, operations_);
  const PositionOf position_of = open_shards(index, folder);
  check_count(position_of);
  check_mapped(index, position_of);
  check_unmapped(index);
  compare_total(index);
}

SetOpener::PositionOf SetOpener::open_shards(const ShardIndex& index, const Folder& folder) {
  PositionOf position_of;
  for (const auto& [tensor, name] : index.weight_map) {
    if (!position_of.emplace(name, files.size()).second) continue;
    add(name, open_shard(folder, name));
  }
  return position_of;
}

// The name is looked at first for the sake of the message: opening refuses links and pipes by
// itself.
File SetOpener::open_shard(const Folder& folder, const std::string& name) const {
  const std::optional<FileStatus> status = folder.status(name);
  if (!status) refuse(Fault::MissingFile, "there is no file " + in_quotes(name), index_path_);
  const char* what = status->kind == FileKind::SymbolicLink
                         ? " is a symbolic link; a set's files lie in its folder"
                         : " is not a regular file";
  if (status->kind != FileKind::Regular)
    refuse(Fault::NotARegularFile, in_quotes(name) + what, index_path_);
  return folder.open_for_reading(name);
}

void SetOpener::check_count(const PositionOf& position_of) const {
  for (const auto& [name, position] : position_of) {
    const std::size_t count = announced_count(name).value_or(files.size());
    if (count != files.size())
      refuse(Fault::FileCountMismatch,
             in_quotes(name) + " in a set of " + std::to_string(files.size()), index_path_);
  }
}

void SetOpener::check_mapped(const ShardIndex& index, const PositionOf& position_of) const {
  for (const auto& [tensor, name] : index.weight_map) {
    const StoredFile& file = files[position_of.find(name)->second];
    if (!file.header.find(tensor))
      refuse(Fault::MissingTensor, "it is not in " + in_quotes(name), index_path_, tensor);
  }
}

void SetOpener::check_unmapped(const ShardIndex& index) const {
  const std::map<std::string_view, std::string_view> file_of(index.weight_map.begin(),
                                                             index.weight_map.end());
  for (const StoredFile& file : files) {
    for (const TensorEntry& entry : file.header.tensors) {
      const auto mapped = file_of.find(entry.name);
      if (mapped == file_of.end() || mapped->second != file.name)
        refuse(Fault::UnmappedTensor, "it is in " + in_quotes(file.name) + ", not mapped to it",
               index_path_, entry.name);
    }
  }
}

void SetOpener::compare_total(const ShardIndex& index) {
  Bytes total = 0;
  for (const StoredFile& file : files) total += file.header.file_bytes - file.header.data_begin;
  if (index.total_size == total) return;
  const std::string found = index.total_size ? std::to_string(*index.total_size) : "absent";
  warnings.push_back(index_path_ + ": total_size is " + found + ", the tensors have " +
                     std::to_string(total) + " bytes");
}

}  // namespace flatshard::safetensors
