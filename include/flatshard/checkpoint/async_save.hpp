// Saving while training goes on.
#pragma once

#include <flatshard/checkpoint/save.hpp>

#include <memory>
#include <optional>

namespace flatshard {

/// Host memory of one rank for the copy that an asynchronous save writes from: what this rank
/// writes, in the dtypes of the files. With every default it is the rank's share of masters and
/// states; over all ranks the sum is the size of the files without their heads.
Bytes snapshot_bytes(const Plan& plan, const Model& model, const Optimizer& optimizer, Rank rank,
                     const SaveOptions& options = {});

/// Saves in the background, one at a time: save() copies what this rank writes to host memory
/// (snapshot_bytes, kept as long as this lives), and a thread writes it, through four blocks of at
/// most 1 MiB. That thread never uses the training communicator: ranks agree over one split off at
/// construction, from the thread where a communicator allows that (Communicator::any_thread), else
/// inside poll(), wait() and save().
///
/// All member functions but the destructor are collective, called by the thread that trains. The
/// Sharder must outlive it. An error of the background surfaces at the next of these calls, alike
/// on all ranks.
class AsyncSaver {
 public:
  /// Options are those of every save. Throws UsageError for Writers::RankZero: rank 0 would hold
  /// more than the copy of its share, or take part in collectives for every block while others
  /// train.
  AsyncSaver(Engine& engine, const SaveOptions& options);
  /// Of a Sharder.
  template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
  AsyncSaver(Sharder<Strategy, Precision, Offload>& trainer, const SaveOptions& options)
      : AsyncSaver(trainer.engine(), options) {}
  /// Waits for the thread. A save that ranks have not agreed on yet is given up: call wait() first.
  ~AsyncSaver();

  /// Waits for the save in flight, if any, then copies and begins. Blocks the host for the copy.
  /// `user` is in place of SaveOptions::user. Throws UsageError between micro-steps, and
  /// CheckpointError when the earlier save failed (then nothing was begun) or this one cannot
  /// begin.
  void save(const std::vector<std::pair<std::string, std::string>>& user = {});
  /// Publishes the save in flight when every rank has written its part. Never waits for a disk.
  /// Its report, once, when it is durable.
  std::optional<SaveReport> poll();
  /// Waits for the save in flight. None: there is none.
  std::optional<SaveReport> wait();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flatshard
