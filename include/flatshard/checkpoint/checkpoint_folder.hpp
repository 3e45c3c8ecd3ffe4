// The folder that a run saves into, as its rank 0 changes it: step by step, so that a crash between
// any two operations leaves every checkpoint either whole or absent.
#pragma once

#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/checkpoint/retention.hpp>
#include <flatshard/io/folder.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

/// A save cannot be, or was not, carried out. The same message on every rank.
class CheckpointError : public Error {
  using Error::Error;
};

/// What happens when the step to be saved has a folder already.
enum class ExistingStep : std::uint8_t {
  Refuse,  // the save fails before anything is written
  Replace  // the new one takes its place in one atomic exchange (Linux; not on NFS), then the old
           // one is deleted
};

/// Where a save is written before it is published: a value that rank 0 makes and all ranks share.
struct StageName {
  std::int64_t step = 0;      // that is saved
  std::uint64_t save_id = 0;  // random, odd; 0: none
  /// ".tmp-<step>-<save id in 16 hexadecimal digits>"
  std::string folder_name() const;
  /// The inverse; none for any other name.
  static std::optional<StageName> parse(const std::string& folder_name);
  friend bool operator==(const StageName&, const StageName&) = default;
};

/// Any rank's way into the stage. Throws IoError: on a disk that this rank does not share, ENOENT.
Folder enter_stage(const std::string& folder, const StageName& stage, FileOperations& operations);

/// Belongs to rank 0 and one thread; holds the lock of the folder as long as it lives, so that two
/// runs cannot sweep or publish in it at once (CheckpointError). Errors of the file system are
/// IoErrors.
class CheckpointFolder {
 public:
  /// Makes the folder when there is none (not its parents), locks it, and deletes what saves that
  /// died have left: .tmp-* and .trash-* that a save made; never through symbolic links. Where the
  /// file system has no locks, only what is older than a day.
  explicit CheckpointFolder(const std::string& path,
                            FileOperations& operations = posix_file_operations());

  const Folder& folder() const { return folder_; }  // open and locked
  /// What could not be swept, one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Makes the stage, durably. Throws CheckpointError when the step exists (as `existing` says) or
  /// when fewer than `bytes` + `reserve` are free; bytes 0: not asked.
  StageName begin(std::int64_t step, Bytes bytes, Bytes reserve, ExistingStep existing) const;
  /// Writes the manifest, durably, after every rank has written and synchronized its files. Sets
  /// step and save_id. Throws ManifestError when a file is missing or has another size.
  void seal(const StageName& stage, Manifest manifest) const;
  /// The commit point: the stage gets the name of its step; then `latest` points to it. Durable
  /// when it returns. When it throws IoError the step may be visible or not, durable or not, but is
  /// whole where it is visible.
  void publish(const StageName& stage, ExistingStep existing) const;
  /// Deletes older checkpoints. What could not be deleted is a warning, never an error.
  std::vector<std::string> retain(const Retention& retention, std::int64_t saved) const;
  /// Deletes a stage that will not be published; what remains is swept another time.
  void discard(const StageName& stage) const noexcept;

 private:
  void sweep();
  void trash(const std::string& name) const;
  void point_to(std::int64_t step) const;

  Folder folder_;
  std::optional<File> lock_;  // none: the file system has no locks
  std::vector<std::string> warnings_;
};

}  // namespace flatshard
