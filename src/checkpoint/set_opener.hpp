// Opens and checks the files behind a TensorSet.
#pragma once

#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/folder.hpp>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace flatshard::safetensors {

class SetOpener {
 public:
  SetOpener(const ReadLimits& limits, Mode mode, FileOperations& operations)
      : limits_(limits), mode_(mode), operations_(operations) {}

  void open(const std::filesystem::path& path);

  std::vector<StoredFile> files;
  std::vector<File> opened;  // as files
  std::vector<std::string> warnings;

 private:
  using PositionOf = std::map<std::string, std::size_t, std::less<>>;  // of a file, by its name

  void open_folder(const Folder& folder);
  void open_index(const std::string& path);
  void add(const std::string& name, File file);
  PositionOf open_shards(const ShardIndex& index, const Folder& folder);
  File open_shard(const Folder& folder, const std::string& name) const;
  void check_count(const PositionOf& position_of) const;
  void check_mapped(const ShardIndex& index, const PositionOf& position_of) const;
  void check_unmapped(const ShardIndex& index) const;
  void compare_total(const ShardIndex& index);

  const ReadLimits& limits_;
  Mode mode_;
  FileOperations& operations_;
  std::string index_path_;
};

}  // namespace flatshard::safetensors
