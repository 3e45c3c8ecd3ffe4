// One save by all ranks: every rank writes its part into a stage, all agree, rank 0 publishes.
#pragma once

#include <flatshard/checkpoint/checkpoint_folder.hpp>
#include <flatshard/core/types.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

/// How ranks speak to each other during a save. Its calls are the same, in the same order, on every
/// rank; they block.
class RankAgreement {
 public:
  RankAgreement() = default;
  RankAgreement(const RankAgreement&) = delete;
  RankAgreement& operator=(const RankAgreement&) = delete;
  virtual ~RankAgreement() = default;

  virtual Rank rank() const = 0;  // of the caller
  virtual int size() const = 0;   // number of ranks
  /// Every rank's text, by rank, on every rank.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
};

/// One rank that agrees with itself.
class SoloAgreement final : public RankAgreement {
 public:
  Rank rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> all_gather(const std::string& text) override { return {text}; }
};

/// What rank 0 needs to know of a save.
struct CommitOptions {
  std::string folder;     // of checkpoints; rank 0's counts
  std::int64_t step = 0;  // rank 0's counts
  Bytes bytes = 0;        // that the ranks will write together; 0: free space is not asked
  Bytes reserve = Bytes{64} << 20;               // to be left free
  ExistingStep existing = ExistingStep::Refuse;  // of a step that is there already
  Retention retention = {};                      // of older checkpoints
};

/// A save in progress. The calls of each rank:
///   Commit commit(...)                      collective: rank 0 opens the folder, makes the stage
///   commit.run(work), any number of times   local: an exception is kept for the next agree
///   commit.agree(), as often as needed      collective: work that others must see is done
///   commit.publish(describe)                collective: agree, manifest, rename, retention
/// agree and publish throw the same CheckpointError on every rank when any rank failed ("rank r:
/// message"); the older checkpoints are untouched then. Local and collective calls may come from
/// different threads, one after the other. The destructor, on rank 0, deletes an unpublished stage.
class Commit {
 public:
  /// `ranks` and `operations` must outlive it. Throws CheckpointError, alike on all ranks.
  Commit(RankAgreement& ranks, const CommitOptions& options,
         FileOperations& operations = posix_file_operations());
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;
  ~Commit();

  const StageName& stage() const { return stage_; }  // where this save is written
  /// Local. Calls work(folder of the stage); work writes files and synchronizes each, but runs no
  /// collective. Does nothing once an earlier work has failed.
  void run(const std::function<void(const Folder& stage)>& work) noexcept;
  /// Collective.
  void agree();
  /// Collective. `describe` is called on every rank after all have agreed and may run collectives;
  /// rank 0's manifest counts. Returns the path of the checkpoint, durable.
  std::string publish(const std::function<Manifest(const Folder& stage)>& describe);
  /// Rank 0: what sweeping or retention could not do, one line each. Nothing of it harms the save.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void begin();
  void enter(const std::string& stage);
  void discard() noexcept;
  void finish(Manifest manifest);
  std::string from_rank_0(const std::string& text);

  RankAgreement& ranks_;
  CommitOptions options_;
  FileOperations& operations_;
  std::optional<CheckpointFolder> folder_;  // on rank 0
  StageName stage_;
  std::optional<Folder> stage_folder_;
  std::optional<std::string> failure_;  // of this rank, not yet told
  bool published_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace flatshard
