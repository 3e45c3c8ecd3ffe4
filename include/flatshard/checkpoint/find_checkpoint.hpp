// Which checkpoint a folder offers.
#pragma once

#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/io/folder.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

inline constexpr const char* latest_name = "latest";  // a file that holds the name of a step

/// "step-1000".
std::string step_folder_name(std::int64_t step);
/// The inverse; none for any other name.
std::optional<std::int64_t> step_of(const std::string& folder_name);

/// A whole checkpoint.
struct FoundCheckpoint {
  std::string path;   // of its folder
  Manifest manifest;  // what it says of itself
  /// Why newer or pointed-to checkpoints were passed over, one line each.
  std::vector<std::string> passed_over;
};

/// Throws ManifestError unless every file that the manifest names is there, regular, with its size.
/// Reads no tensors: digests are another matter.
void expect_whole(const Folder& checkpoint, const Manifest& manifest);

/// `path` is a checkpoint (a folder with a manifest), or a folder of checkpoints: then the one that
/// `latest` names, when it is whole, else the whole one with the highest step. None: there is no
/// checkpoint. For one rank: the others get its answer, never look themselves. Throws IoError when
/// `path` cannot be read, ManifestError when `path` itself is a checkpoint and not whole, or when
/// checkpoints are there and none is whole.
std::optional<FoundCheckpoint> find_checkpoint(
    const std::string& path, FileOperations& operations = posix_file_operations());

/// Steps with a folder, whole or not, ascending.
std::vector<std::int64_t> list_steps(const Folder& folder);

}  // namespace flatshard
