// What a checkpoint says of itself: manifest.json, written last and read first. A folder without
// one is no checkpoint.
#pragma once

#include <flatshard/core/error.hpp>
#include <flatshard/core/types.hpp>
#include <flatshard/io/folder.hpp>
#include <flatshard/ops/loss_scale.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flatshard {

/// Name of the manifest in a checkpoint's folder.
inline constexpr const char* manifest_name = "manifest.json";
/// The version that is written.
inline constexpr std::int64_t manifest_version = 1;

/// A tensor in a file of the checkpoint.
struct TensorDigest {
  std::string name;                 // in the file's header
  std::string dtype;                // as in the safetensors header: "F32"
  std::vector<std::int64_t> shape;  // in the file's header
  std::uint32_t crc32c = 0;         // of its bytes in the file
  friend bool operator==(const TensorDigest&, const TensorDigest&) = default;
};

/// A safetensors file of the checkpoint.
struct FileDigest {
  std::string name;                   // in the checkpoint's folder
  Bytes bytes = 0;                    // size of the file
  Bytes header_bytes = 0;             // everything before the data section, its padding included
  std::uint32_t header_crc32c = 0;    // of these bytes
  std::vector<TensorDigest> tensors;  // in the order of their bytes
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

/// Hyper-parameters of one parameter group, by name.
struct HyperParameters {
  std::vector<std::pair<std::string, double>> values;  // as the functor publishes them
  friend bool operator==(const HyperParameters&, const HyperParameters&) = default;
};

/// The optimizer as it was applied.
struct OptimizerRecord {
  std::string name;                     // of the functor
  std::vector<std::string> states;      // names, in its order
  std::vector<HyperParameters> groups;  // as options.groups
  std::int64_t time = 0;                // updates applied; SGD's first update is time == 1
  /// Parameters that were updated another number of times (frozen for a while, unused).
  std::vector<std::pair<std::string, std::int64_t>> times;
  friend bool operator==(const OptimizerRecord&, const OptimizerRecord&) = default;
};

/// Saved between steps only: there is no field for a half accumulated gradient. Strings are UTF-8.
struct Manifest {
  std::int64_t version = manifest_version;  // of this format
  std::string library;     // version of flatshard that wrote it; filled in by to_json when empty
  std::string save_id;     // 16 hexadecimal digits, differs for every save
  std::int64_t step = 0;   // steps concluded, skipped ones included
  std::int64_t world = 1;  // ranks that wrote it, and how they trained: for people only, no digest
  std::string strategy;    // or layout depends on it
  std::string precision;   // for people
  std::optional<OptimizerRecord> optimizer;               // none: model only
  std::optional<LossScaler> loss_scaler;                  // none: the precision scales no loss
  std::optional<std::uint64_t> seed;                      // of stochastic rounding
  std::vector<std::pair<std::string, std::string>> ties;  // alias -> owner
  std::vector<std::pair<std::string, std::string>> user;  // data position, ... : the program's own
  std::vector<FileDigest> files;                          // all but the manifest

  /// The file of that name; nullptr: there is none.
  const FileDigest* find_file(const std::string& name) const;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Bounds on what is read, checked before anything is stored.
struct ManifestLimits {
  Bytes bytes = Bytes{1} << 30;         // of manifest.json
  std::int64_t tensors = 10'000'000;    // of all files
  std::int64_t entries = 1'000'000;     // of any other list
  std::int64_t string_bytes = 1 << 20;  // of a string (user data); names: 4096
  std::int64_t dimensions = 64;         // of a tensor
};

/// A manifest is not JSON, not of a known version, or contradicts itself. what() begins with the
/// path and ends with the place in the text.
class ManifestError : public Error {
 public:
  /// `offset` in the text, -1: no single place.
  ManifestError(const std::string& path, Bytes offset, const std::string& message);
  /// Of the manifest.
  const std::string& path() const noexcept { return path_; }
  /// In bytes from the beginning of the text, -1: no single place.
  Bytes offset() const noexcept { return offset_; }

 private:
  std::string path_;
  Bytes offset_;
};

/// The text, always the same for the same manifest. Doubles come back bit for bit. Its last member
/// is the CRC32C of all text before it. Throws UsageError for what cannot be written: infinities,
/// NaN, text that is not UTF-8, a name twice.
std::string to_json(const Manifest& manifest);
/// from_json(to_json(m)) == m. Strict: an unknown or repeated key, a missing member, another
/// version, a number that does not fit, a wrong digest throw ManifestError. `path` is for messages.
Manifest from_json(std::string_view text, const std::string& path = manifest_name,
                   const ManifestLimits& limits = {});

/// manifest.json of an open checkpoint. Throws IoError (ENOENT: no checkpoint) or ManifestError.
Manifest read_manifest(const Folder& checkpoint, const ManifestLimits& limits = {});
/// The same of a checkpoint's folder by its path.
Manifest read_manifest(const std::string& checkpoint,
                       FileOperations& operations = posix_file_operations(),
                       const ManifestLimits& limits = {});

}  // namespace flatshard
