// Loading: every rank takes the elements that it owns, whoever wrote them and however they were
// sharded then.
#pragma once

#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/sharder/engine.hpp>
#include <flatshard/sharder/sharder.hpp>

#include <functional>
#include <string>
#include <vector>

namespace flatshard {

/// Who reads.
enum class Readers : std::uint8_t {
  EveryRank,  // the bytes that it needs, from a file system that all ranks see
  RankZero    // and broadcasts, block by block: for disks that only rank 0 sees
};

/// Where a parameter or registered buffer comes from in somebody else's file.
struct TensorSource {
  std::string name;        // in the file
  bool transpose = false;  // of two dimensions: parameter (R, C) is stored as (C, R)
  Elements first_row = 0;  // the parameter is rows [first_row, first_row + its rows) of the
                           // tensor, after transposition
  bool rows = false;       // false: it is all of the tensor
};

/// The source of the parameter or buffer of that full name.
using SourceOf = std::function<TensorSource(const std::string& name)>;

/// What a load may do, and how.
struct LoadOptions {
  bool allow_downcast = false;  // a stored dtype that the dtype in memory cannot hold exactly
  bool allow_missing = false;   // parameters and buffers that are not stored keep their values
  bool allow_unused = false;    // stored tensors that nothing takes
  Readers readers = Readers::EveryRank;  // who reads
  Bytes block_bytes = Bytes{1} << 20;    // of a staging buffer: a load needs at most six
  bool page_cache = false;  // false: ranks read past the system's page cache where they can; true:
                            // through it, for files that are in it or will soon be read again
  FileOperations* operations = nullptr;  // none: the operating system's

  // Of checkpoints only:
  bool optimizer_state = true;   // false: parameters and buffers only; training begins at step 0
  bool hyper_parameters = true;  // of each group, until the next set_optimizer(); false: the
                                 // Sharder's own
  bool verify_digests = true;    // of every tensor that is read

  // Of other files only:
  SourceOf source = {};  // none: under its own name, as is
};

/// What was loaded.
struct LoadReport {
  std::string path;                   // of what was loaded
  Manifest manifest;                  // of a checkpoint
  std::vector<std::string> warnings;  // what was tolerated
};

/// Goes on from a checkpoint: the folder of one, or a folder of checkpoints, of which the one that
/// `latest` names or the newest whole one is taken. Any world size, strategy, wrapping and
/// precision may follow any other; equal dtypes give equal bits. Parameters, buffers, optimizer
/// states, time steps, loss scale (under the same rule), seed, hyper-parameters, step count.
/// Collective; blocks the host. Every rank gives the same options; rank 0 decides which checkpoint.
/// Throws CheckpointError, alike on all ranks. Nothing was changed, unless reading failed half way
/// or a digest is wrong: then what() says that the parameters are undefined.
LoadReport load_checkpoint(Engine& engine, const std::string& path,
                           const LoadOptions& options = {});

/// Parameters and buffers from a safetensors file, a sharded set's index, or a folder with either.
/// Collective, as load_checkpoint(); nothing else changes.
LoadReport load_tensors(Engine& engine, const std::string& path, const LoadOptions& options = {});

/// Of a Sharder.
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
LoadReport load_checkpoint(Sharder<Strategy, Precision, Offload>& trainer, const std::string& path,
                           const LoadOptions& options = {}) {
  return load_checkpoint(trainer.engine(), path, options);
}
/// Of a Sharder.
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
LoadReport load_tensors(Sharder<Strategy, Precision, Offload>& trainer, const std::string& path,
                        const LoadOptions& options = {}) {
  return load_tensors(trainer.engine(), path, options);
}

/// How a file becomes a Model.
struct ModelOptions {
  /// The module of a tensor; none: its name up to the last dot.
  std::function<std::string(const std::string& name)> module_of = {};
  /// Of a parameter; none: trainable, group 0, the precision policy's compute dtype.
  std::function<ParameterOptions(const std::string& name)> parameter_options = {};
  FileOperations* operations = nullptr;  // none: the operating system's
};

/// Names and shapes from the headers of a safetensors file, index or folder: floating tensors are
/// parameters, all others registered buffers. No communicator: every rank reads it. (Not a member
/// of Model, which knows no files.) Throws IoError, FormatError, UsageError for a dtype that
/// flatshard has none for.
Model model_from_safetensors(const std::string& path, const ModelOptions& options = {});

}  // namespace flatshard
