// Run-time options of a Sharder. Every field has a default; what cannot be done is refused at
// construction, before anything is allocated.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/core/stream.hpp>
#include <flatshard/core/types.hpp>
#include <flatshard/io/slot_store.hpp>
#include <flatshard/layout/wrap.hpp>
#include <flatshard/ops/loss_scale.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/step_control.hpp>
#include <flatshard/policy/offload.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

/// How the gradients of several micro-steps become one.
enum class Accumulation {
  Running,  // sum so far + next: no extra memory
  Tree      // binary counter of floor(log2 K) partial sums: one result for every split of W * K
};

/// When gradients are reduced over ranks.
enum class ReduceMoment {
  Micro,           // after every micro-step, into the shard
  Boundary,        // once, at the last micro-step; whole gradients are kept until then
  ReplicaBoundary  // hybrids: inside the group every micro-step, across replicas at the last
};

/// When the next unit of backward is gathered.
enum class BackwardPrefetch {
  Pre,   // before the current unit's backward: most overlap, one more unit in memory
  Post,  // after it
  None
};

/// Called once in every step (twice where fp64 gradients train), when this Sharder's ranks have
/// measured their gradients and before the norm is used: `measure` is in device memory, the sum of
/// squares or the largest magnitude of the summed gradients, equal on all ranks of a shard group.
/// Enqueue on `stream` what combines it with the measures of other pipeline stages or tensor
/// slices; never block. Not called where nothing is trainable.
using NormHook = std::function<void(double* measure, NormKind kind, StreamRef stream)>;

/// Told at construction, by the rank's thread: what works, but not as well as it could. Once of
/// host memory that is not pinned, once of NVMe without io_uring.
using WarningHandler = std::function<void(std::string_view message)>;

/// No cap.
inline constexpr Elements unlimited_elements = std::numeric_limits<Elements>::max();
/// No budget.
inline constexpr Bytes unlimited_bytes = std::numeric_limits<Bytes>::max();

/// Where and how parts rest on NVMe. Each rank has files of its own there, as SlotStore says: they
/// have no names, and nothing but an empty folder outlives a process that is killed.
struct NvmeOptions {
  std::string folder = {};                // on the disk to use; made when there is none
  std::optional<IoBackend> backend = {};  // none: io_uring where it works, else threads
  int queue_depth = 16;                   // transfers in flight, of each file
  Bytes block_bytes = 1 << 20;            // per transfer and checksum; a multiple of 4096
  int buffers = 3;                       // for each of the two files: units in memory at once, each
                                         // buffer as large as the largest (Role::Staging); with 3,
                                         // reading, work and writing overlap
  bool direct = true;                    // past the page cache, where the file system can
  FileOperations* operations = nullptr;  // must outlive the Sharder; none: the system's
  /// For tests: what it makes of a file's transfer queue is used in its place.
  std::function<std::unique_ptr<TransferQueue>(std::unique_ptr<TransferQueue>)> decorate = {};
};

/// Run-time options; a table of what they are elsewhere is in the documentation.
struct Options {
  double max_grad_norm = 0;       // clip the norm of the mean gradient to this; 0: off
  NormKind norm = NormKind::Two;  // the norm that is clipped and reported
  int max_micro_steps = 1;  // the most micro-steps a step may have; sizes partial sums in the Plan
  Accumulation accumulation = Accumulation::Running;  // of several micro-steps
  std::optional<ReduceMoment> reduce_moment = {};     // none: the strategy's default
  int shard_group = 0;  // ranks per shard group; 0: largest power of two <= max(1, W/2) dividing W
  WrapPolicy wrap = wrap::each_module();                       // modules -> units
  int prefetch_forward = 1;                                    // units gathered ahead in forward
  BackwardPrefetch prefetch_backward = BackwardPrefetch::Pre;  // when
  Elements max_live_elements = unlimited_elements;  // most elements gathered at once on a rank
  Elements persistence_threshold = 0;  // parameters of at most so many elements stay whole
  OnNonFinite on_nonfinite = OnNonFinite::Error;  // without loss scaling
  bool step_in_backward = false;  // update each unit as soon as its gradient is reduced (on the
                                  // host some in step(), or before what would see them is set or
                                  // read). What is gathered before step() is new then, but for
                                  // units held meanwhile, and whole parameters that rest on the
                                  // host while ranks share their update. Not with clipping, loss
                                  // scaling, OnNonFinite::Skip, skip_when_unused
  /// With the optimizer in host memory, slices of more elements pass in parts of so many, through
  /// four buffers for each direction (Role::Staging, pinned as far as the budget goes), which
  /// should fit the last cache. Up go new parameters that the host rounds and that rest on the
  /// device; down come, in a step in backward of one micro-step, gradients that are stored in the
  /// dtype in which they are reduced, of units that train one flat. A multiple of 1024 is best; 0:
  /// never in parts.
  Elements update_part = Elements{1} << 21;
  std::optional<ScaleSettings> loss_scale = {};  // for the rule that the precision policy names;
                                                 // none: the rule's defaults (static: 65536)
  std::vector<GroupOptions> groups =
      std::vector<GroupOptions>(1);  // hyper-parameter groups, by ParameterOptions::group
  bool capturable = false;           // hyper-parameters lie in device memory, so that a captured
                                     // step may be replayed with others: Sharder::capture
  std::uint64_t seed = 0;            // of stochastic rounding
  Device* device = nullptr;          // none: the communicator's, else a host device of its own
  Stream* compute_stream = nullptr;  // where your kernels run; none: the device's choice
  MemoryResource* memory = nullptr;  // of the device, for the arena; none: the device's own
  NormHook norm_hook = {};           // other parallel dimensions' part of the norm
  std::optional<OffloadTraits> offload = {};  // in place of the offload policy's answers, for
                                              // programs that choose at run time
  Bytes pinned_budget = unlimited_bytes;  // most pinned host memory of offloaded parts; what does
                                          // not fit is pageable, and on_warning is told
  NvmeOptions nvme = {};                  // of what rests on NVMe; needs a folder then
  WarningHandler on_warning = {};         // none: nobody is told
};

}  // namespace flatshard
