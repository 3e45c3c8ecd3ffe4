// Saving: full-shape safetensors files that every rank writes its own bytes into.
#pragma once

#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/layout/model.hpp>
#include <flatshard/sharder/engine.hpp>
#include <flatshard/sharder/sharder.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flatshard {

/// Who writes.
enum class Writers : std::uint8_t {
  EveryRank,  // its own byte ranges, in place: one file system that all ranks share
  RankZero    // what the others send it block by block: for file systems that cannot take parallel
              // writes or that only rank 0 sees
};

/// What is saved, where, and by whom.
struct SaveOptions {
  std::string folder = {};                // of checkpoints; this one becomes folder/step-<n>
  std::optional<DType> model_dtype = {};  // of parameters in the model's file; none: the master's
  bool optimizer_state = true;            // false: model only; training cannot go on from it
  Bytes max_file_bytes = 0;               // of tensors per file, more make a set; 0: one file
  Writers writers = Writers::EveryRank;   // who writes
  ExistingStep existing = ExistingStep::Refuse;  // of a step that is there already
  Retention retention = {};                      // of older checkpoints
  Bytes reserve = Bytes{64} << 20;               // to be left free on the disk
  Bytes block_bytes = Bytes{8} << 20;            // of each staging buffer: a save needs at most two
                                                 // and four of at most 1 MiB to write from
  bool page_cache = false;  // false: ranks write past the system's page cache where they can; true:
                            // through it, for files that will soon be read again
  std::vector<std::pair<std::string, std::string>> user =
      {};                                // into the manifest: data position...
  FileOperations* operations = nullptr;  // none: the operating system's
};

/// What was saved.
struct SaveReport {
  std::string path;                   // of the checkpoint, durable
  std::vector<std::string> warnings;  // rank 0: what sweeping or retention could not do
};

/// Writes folder/step-<steps so far>:
///   model.safetensors      parameters (frozen ones too) and registered buffers, full shapes
///   optimizer.safetensors  <name>.<state>, and <name>.master where the model's file has another
///                          dtype than training
///   manifest.json          everything else, and digests
/// Collective; blocks the host until the checkpoint is durable. Every rank gives the same options.
/// The result does not depend on how the model is sharded. Throws UsageError between micro-steps,
/// CheckpointError, alike on all ranks, when any rank failed: then nothing was published.
SaveReport save_checkpoint(Engine& engine, const SaveOptions& options);

/// Of a Sharder.
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
SaveReport save_checkpoint(Sharder<Strategy, Precision, Offload>& trainer,
                           const SaveOptions& options) {
  return save_checkpoint(trainer.engine(), options);
}

}  // namespace flatshard
