// The Plan: who owns which element, what is allocated, which collectives run. A pure host value,
// built without threads or devices; it compares with == and prints. The engine only carries it out.
#pragma once

#include <flatshard/layout/canonical.hpp>
#include <flatshard/layout/flat_layout.hpp>
#include <flatshard/layout/model.hpp>
#include <flatshard/layout/norm_tree.hpp>
#include <flatshard/layout/unit.hpp>
#include <flatshard/policy/offload.hpp>
#include <flatshard/policy/precision.hpp>
#include <flatshard/policy/strategy.hpp>
#include <flatshard/sharder/options.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

/// What a block of memory is for.
enum class Role {
  Master,           // fp32 (or T) weights of the own slice
  Compute,          // compute-dtype slice, where it is not the master itself; all of it where whole
                    // parameters rest on the host
  Whole,            // whole compute-dtype parameters of one flat
  Secondary,        // slice of the second, in-group shard
  Gradient,         // accumulated gradient: own slice, or whole for ReduceMoment::Boundary
  Partial,          // partial sums of tree accumulation
  State,            // optimizer state
  GatherRing,       // whole parameters of whichever unit is in use
  GradientRing,     // gradients that backward writes, of whichever unit is in use
  GradientUnit,     // the same for a dedicated unit
  Scratch,          // reduced slice before it is added
  Exchange,         // other ranks' contributions to a sum, where the communicator needs such
  Control,          // step control, reports, norm values
  RegisteredData,   // registered buffers of the model
  ReducedGradient,  // own slice beside an optimizer on the host, where sums are formed elsewhere
  Staging           // what is on its way between device, host and NVMe
};
/// Number of roles.
inline constexpr int role_count = 16;
std::string_view name_of(Role role);  // as to_string(Plan) prints it

/// Where an arena lies.
enum class Memory {
  Device,    // of the device that computes
  Pinned,    // of the host, which the device copies from and to at its own pace
  Pageable,  // of the host, beyond Options::pinned_budget
  Nvme       // no memory: files of this rank
};
/// Number of them.
inline constexpr int memory_count = 4;
std::string_view name_of(Memory memory);  // as to_string(Plan) prints it

/// A block of an arena.
struct Block {
  Role role = Role::Control;       // what it is for
  int owner = -1;                  // flat, unit, ring slot or buffer index, as the role says
  int index = 0;                   // which state, partial sum or slot
  Bytes offset = 0;                // in the arena, or in the file
  Bytes bytes = 0;                 // its size
  Memory memory = Memory::Device;  // which arena
  friend bool operator==(const Block&, const Block&) = default;
};

/// A run of one slice whose elements share a hyper-parameter group. Under stochastic rounding a run
/// is one fragment, so that canonical indices are contiguous; else runs may span padding, which
/// every optimizer leaves zero.
struct StepRun {
  Elements offset = 0;     // in the slice
  Elements count = 0;      // elements
  Elements canonical = 0;  // of the first element
  int group = 0;           // of Options::groups
  friend bool operator==(const StepRun&, const StepRun&) = default;
};

/// A flat parameter: the parameters of one unit that share dtypes, gradient need, persistence and
/// unused rule, one after the other, cut into equal slices over the shard group.
struct Flat {
  std::string label;            // "unit name/index": what collectives are named after
  int unit = 0;                 // of Plan::units
  std::vector<int> parameters;  // of the model, ordered by hyper-parameter group, then model order
  DType master, compute, reduce, accumulate, state;  // of its roles; accumulate is narrower than
                                                     // the policy's where nothing is accumulated
  bool requires_grad = true;                         // false: frozen
  bool persistent = false;                           // whole between uses, as a small parameter
  /// As ModuleOptions says.
  bool skip_when_unused = false;
  ParametersWhole whole = ParametersWhole::Always;  // on the device; after persistence, group size
                                                    // and offload are counted
  Tier parameters_rest = Tier::Device;  // the compute dtype; a persistent flat's: Device
  bool rests_whole = true;         // every rank of the group keeps all of it there, not its slice
  FlatLayout layout;               // parameters -> positions
  Partition partition;             // positions -> slices
  bool master_is_compute = false;  // one copy serves both roles: equal dtypes that
                                   // rest on one tier
  bool relayed = false;            // in a step in backward of one micro-step its gradient may come
                                   // to the host in parts of Plan::update_part
  bool staged_in_parts = false;    // its new parameters go up in such parts
  bool gradient_in_place = false;  // backward writes straight into the accumulated gradient
  Bytes gather_offset = 0;         // in the ring slot of its unit
  Bytes gradient_offset = 0;       // in the gradient slot of its unit
  Bytes staging_offset = 0;        // in the staging slot of its unit
  StepRow step_row;                // of its update
  std::vector<std::vector<StepRun>> runs;  // per rank of the shard group; frozen: none
  /// Without elements nothing is allocated, gathered or reduced.
  bool is_empty() const { return partition.padded() == 0; }
  friend bool operator==(const Flat&, const Flat&) = default;
};

/// What of a flat is read and written together.
enum class NvmePart {
  Optimizer,  // master and states
  Gradient,   // accumulated gradient and partial sums
  Parameters  // compute-dtype slice, or the whole flat where that rests
};
/// Number of them.
inline constexpr int nvme_part_count = 3;

/// One part of one flat in a file, a whole number of pages of 4096 bytes. Its blocks follow one
/// another, as memory does when it is there.
struct NvmeSlot {
  NvmePart part = NvmePart::Optimizer;  // of that flat
  int flat = -1;                        // of Plan::flats
  Bytes offset = 0;                     // in the file
  Bytes bytes = 0;                      // of its blocks, rounded up
  Bytes buffer_offset = 0;              // in a buffer that holds the flat's unit
  friend bool operator==(const NvmeSlot&, const NvmeSlot&) = default;
};

/// A file of this rank on NVMe, and the buffers in host memory (Role::Staging) that units pass
/// through.
struct NvmeFile {
  std::vector<NvmeSlot> slots;  // in order of offset
  Bytes bytes = 0;              // of all slots
  int buffers = 0;              // at most Options::nvme.buffers
  Bytes buffer_bytes = 0;       // of the largest unit
  friend bool operator==(const NvmeFile&, const NvmeFile&) = default;
};

/// What is gathered together, as the engine sees it.
struct UnitPlan {
  std::string name;          // as Unit
  std::vector<int> modules;  // of the model
  std::vector<int> flats;    // of Plan::flats
  int uses = 0;              // calls per phase of a micro-step that touch the unit
  bool dedicated = false;  // lives across other units' calls: buffers of its own, kept for the step
  bool trainable = false;  // some flat has gradients
  /// Of all its modules.
  bool backward_overwrites = false;
  Elements gathered_elements = 0;  // padded elements of its flats that are not always whole
  Bytes ring_bytes = 0;            // of its flats that are gathered per use, whole, compute dtype
  Bytes gradient_bytes = 0;        // of its flats whose gradient is not written in place, whole
  Bytes staging_bytes = 0;         // of compute-dtype slices that are made beside the optimizer and
                                   // rest on another tier
  friend bool operator==(const UnitPlan&, const UnitPlan&) = default;
};

/// Collectives of one kind in one step. Those of one rank with itself are not counted.
struct Traffic {
  std::string collective;  // all_gather, reduce_scatter, all_reduce
  std::string over;        // shard group, replicas, secondary group
  int calls = 0;           // collectives
  Bytes bytes = 0;   // each rank must send, all calls together: sums of bytes_sent (comm/call.hpp)
  std::string what;  // parameters, gradients, norm
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// What make_plan is asked.
struct PlanRequest {
  StrategyTraits strategy = {};     // of the strategy policy
  PrecisionTraits precision = {};   // of the precision policy
  OffloadTraits offload = {};       // of the offload policy
  int world = 1;                    // ranks
  int optimizer_states = 2;         // of each element
  bool canonical_reduction = true;  // the communicator's sums follow the tree T
  bool needs_scratch = false;       // and it exchanges contributions to form them
  friend bool operator==(const PlanRequest&, const PlanRequest&) = default;
};

/// Equal on every rank; equal Plans are carried out alike.
struct Plan {
  PlanRequest request;      // what was asked
  int world = 1;            // W: ranks
  int shard_group = 1;      // G: ranks that share one copy of everything sharded
  int replicas = 1;         // W / G
  int device_groups = 0;    // hyper-parameter groups kept in device memory: Options::capturable
  int secondary_group = 1;  // ranks that share one second shard; 1: whole on every rank, or none
  ReduceMoment moment = ReduceMoment::Micro;          // when gradients are reduced
  int max_micro_steps = 1;                            // the most a step may have
  Accumulation accumulation = Accumulation::Running;  // of several micro-steps
  int partial_sums = 0;           // floor(log2 max_micro_steps) under tree accumulation
  int gather_slots = 0;           // ring slots, each of gather_slot_bytes
  Bytes gather_slot_bytes = 0;    // of the largest unit
  int gradient_slots = 0;         // ring slots of gradients that backward writes
  Bytes gradient_slot_bytes = 0;  // of the largest unit
  Bytes landing_bytes = 0;        // scratch: a reduced slice before it is added or goes to the host
  int landing_slots = 1;          // of these; 2: one is reduced while another is copied
  Bytes arrival_bytes = 0;        // on the host: a slice that has arrived, before it is added
  Elements update_part = 0;       // longer slices are stepped with on the host in parts of so many;
                                  // 0: none is
  int relay_slots = 0;            // on the host: parts of gradients that are used as they arrive
  Bytes relay_slot_bytes = 0;     // of each: update_part elements of the widest dtype
  int upload_slots = 0;           // on the host: parts of new parameters on their way up
  Bytes upload_slot_bytes = 0;    // the same
  int staging_slots = 0;          // of compute-dtype slices; 2: one is written while another moves
  Bytes staging_slot_bytes = 0;   // of the largest unit
  Bytes wide_bytes = 0;           // scratch: a slice summed inside the group, before the replicas
  int norm_leaves = 0;            // the most leaves any rank sums
  int norm_passes = 1;  // 2: fp64 gradients, whose squares may overflow although all are finite
  std::vector<UnitPlan> units;                  // what is gathered together
  std::vector<Flat> flats;                      // what is one collective
  std::vector<int> unit_of_module;              // per module: its unit
  std::vector<std::vector<int>> units_of_call;  // per module: units its calls touch
  std::vector<int> flat_of_parameter;           // per parameter: its flat
  std::vector<int> slot_of_parameter;           // position within its flat
  CanonicalIndex canonical{{}};                 // of the model
  NormPlan norm;                                // over the ranks of one shard group
  std::vector<Block> blocks;                    // arena by arena, in order of offset
  Bytes arena_bytes = 0;                        // all that is allocated on the device
  Bytes pinned_bytes = 0;                       // all pinned host memory of offloaded parts
  Bytes pageable_bytes = 0;                     // all pageable host memory of offloaded parts
  NvmeFile optimizer_file;                      // masters, states and gradients that rest on NVMe
  NvmeFile parameter_file;                      // parameters that do
  Bytes nvme_block_bytes = 0;                   // of one transfer; 0: nothing is on NVMe
  std::vector<std::string> promises;            // what is promised of the bits, in words

  /// Bytes of all blocks of a role, on every rank.
  Bytes bytes(Role role) const;
  /// Of those, in one memory.
  Bytes bytes(Role role, Memory memory) const;
  /// All that is allocated in one memory.
  Bytes bytes(Memory memory) const;
  /// The block; nullptr when the Plan has none.
  const Block* block(Role role, int owner, int index = 0) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The Plan of a model under policies and options; throws UsageError on what these, sizes and ranks
/// do not allow, with the names and numbers involved. (What its steps could not do, with the
/// optimizer or together with other options, is refused when a Sharder is made.)
Plan make_plan(const Model& model, const PlanRequest& request, const Options& options);

/// A table for people: bytes per role and tier, units, collectives of one step, promises.
std::string to_string(const Plan& plan);
/// Collectives of one step of `micro_steps` micro-steps in which every module is called as
/// declared and every unit is gathered no more often than it must.
std::vector<Traffic> traffic(const Plan& plan, int micro_steps);

}  // namespace flatshard
