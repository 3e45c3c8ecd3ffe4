// Tensors of one safetensors file or of a sharded set, by name.
#pragma once

#include <flatshard/checkpoint/safetensors.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {
class File;
class FileOperations;
struct FileRange;
}  // namespace flatshard

namespace flatshard::safetensors {

/// One file of a set.
struct StoredFile {
  std::string name;  // inside the set's folder
  Header header;     // checked
};

/// Where a tensor lies. Valid as long as the set, moved or not.
struct StoredTensor {
  std::size_t file = 0;                // position in files()
  const TensorEntry* entry = nullptr;  // in that file's header
};

/// Owns the open files. Thread-safe after opening: reads are positional.
class TensorSet {
 public:
  /// `path` is a safetensors file, an index (its name ends in ".json"), or a folder, in which it
  /// takes model.safetensors, else model.safetensors.index.json. Reads every header and checks, for
  /// a set: shards are regular files in the index's folder, never reached through a symbolic link
  /// or a path; every mapped tensor is in its file, every tensor of a file is mapped to that file;
  /// a count in the files' names (-of-N) is the number of files. Another total_size than the
  /// tensors' is a warning. (Links of the user's own are followed: `path`, and the two names in a
  /// folder.) Throws FormatError, IoError. Blocks on the file system.
  static TensorSet open(const std::filesystem::path& path, const ReadLimits& limits = {},
                        Mode mode = Mode::Strict);
  /// The same through another file system.
  static TensorSet open(const std::filesystem::path& path, const ReadLimits& limits, Mode mode,
                        FileOperations& operations);

  ~TensorSet();
  TensorSet(TensorSet&&) noexcept;             // leaves the other empty
  TensorSet& operator=(TensorSet&&) noexcept;  // closes what it held

  /// All files of the set.
  const std::vector<StoredFile>& files() const noexcept { return files_; }
  /// All tensors, names ascending.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const noexcept {
    return tensors_;
  }
  /// Throws UsageError, with similar names, when there is none.
  const StoredTensor& at(std::string_view name) const;
  /// What was tolerated, over all files.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Reads bytes [first, first + into.size()) of a tensor. Throws UsageError beyond its end,
  /// IoError.
  void read(std::string_view name, Bytes first, std::span<std::byte> into) const;
  /// The same of a tensor that was looked up.
  void read(const StoredTensor& tensor, Bytes first, std::span<std::byte> into) const;
  /// Where these bytes of the tensor lie. Valid as long as the set, moved or not.
  FileRange range(const StoredTensor& tensor, Bytes first, Bytes bytes) const;

 private:
  TensorSet();

  std::vector<StoredFile> files_;
  std::vector<File> opened_;  // as files_
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace flatshard::safetensors
