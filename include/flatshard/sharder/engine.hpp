// The engine: carries out a Plan. One class for every strategy, precision and offload; dtypes reach
// it as values of the Plan, devices as a table of kernels.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/sharder/plan.hpp>
#include <flatshard/sharder/training_state.hpp>

#include <memory>
#include <optional>
#include <string>

namespace flatshard {

/// Of Sharder::micro_step.
struct MicroStepOptions {
  bool last = true;  // no further micro-step follows before step()
};

/// Of Sharder::step.
struct StepOptions {
  double gradient_divisor = 0;  // of the gradients' sum; 0: world size * micro-steps of this step
  const double* device_gradient_divisor = nullptr;  // the same in device memory; wins
};

/// Of a call of the user's code.
enum class Phase { Forward, Backward };

/// Parameters of one module's units, whole and in master precision, in memory of their own.
class Summoned {
 public:
  /// Address of the parameter's first element; null when it is not part of this.
  std::byte* data(int parameter) const;
  /// Is the flat part of this?
  bool holds(int flat) const;

 private:
  friend class Engine;
  const Plan* plan_ = nullptr;
  std::vector<int> flats_;
  std::vector<Buffer> buffers_;
};

/// What one rank holds of one parameter: views of its shard, where the optimizer rests (of a frozen
/// one: where parameters do), in the dtypes of the parameter's Flat (master, accumulate, state).
/// They stay where they are as long as the Sharder lives. Call synchronize() before the host reads
/// them; to set parameters use assign or summon_full, which also renew the copies made from them.
struct LocalShard {
  Elements offset = 0;                    // of the first element, within the parameter
  Elements count = 0;                     // 0: this rank holds nothing
  std::byte* master = nullptr;            // frozen: the compute-dtype shard
  std::byte* gradient = nullptr;          // sum over all contributions; frozen: null. Of a
                                          // Flat::relayed unspecified after a step in backward
  DType gradient_dtype = DType::Float32;  // Flat::accumulate: the policy's, or narrower (see there)
  std::vector<std::byte*> states;         // one per name of the optimizer's states
};

/// Untyped core of Sharder; see there for what each call means. Not thread-safe: one thread (the
/// rank's) makes all calls. Every rank must make the same calls in the same order.
class Engine {
 public:
  /// As Sharder's constructor; `request` says which policies.
  Engine(Communicator& communicator, const Model& model, const Optimizer& optimizer,
         const PlanRequest& request, const Options& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// What it carries out.
  const Plan& plan() const;
  const Model& model() const;  // its copy
  Device& device() const;      // where it computes
  /// What the Plan pins is pinned; else Options::on_warning was told of it.
  bool has_pinned_memory() const;
  /// Of the model; throw UsageError when it has no such parameter or buffer.
  const ParameterSpec& parameter_spec(int parameter) const;
  /// Of the model; throws UsageError when it has no such buffer.
  const BufferSpec& buffer_spec(int buffer) const;
  /// Of one parameter: its own, or the policy's.
  DType compute_dtype(int parameter) const;
  /// Of one parameter; frozen: its compute dtype.
  DType master_dtype(int parameter) const;
  Stream& compute_stream() const;  // where the user's kernels run

  void begin_micro_step(const MicroStepOptions& options);  // Sharder::micro_step
  Elements micro_batch(int index, int count) const;        // Sharder::micro_batch
  /// Before the user's function: the module is whole on the compute stream.
  void enter(Phase phase, int module);
  /// `completed` is false when the user's function threw.
  void leave(Phase phase, int module, bool completed);

  /// Sharder::gather.
  void hold(int module);
  /// Ends hold().
  void release(int module) noexcept;
  void prefetch(int module);        // Sharder::prefetch
  void open_gradients(int module);  // Sharder::gradients
  void reduce(int module);          // Sharder::reduce
  void discard_step();              // Sharder::discard_step

  /// Sharder::step; the number to wait() for.
  std::int64_t step(const StepOptions& options);
  CudaGraph capture(const std::function<void()>& step);  // Sharder::capture
  std::int64_t replay(CudaGraph& captured);        // Sharder::replay; the number to wait() for
  StepReport wait(std::int64_t step);              // PendingReport::wait
  void set_optimizer(const Optimizer& optimizer);  // Sharder::set_optimizer
  const float* loss_scale() const;                 // Sharder::loss_scale, in device memory

  /// Addresses of a parameter for a call of `module`; throw UsageError when it is not part of that
  /// module or not whole.
  std::byte* weights(int parameter, int module) const;
  /// The same of its gradient; also throws for a frozen parameter.
  std::byte* gradient(int parameter, int module) const;
  /// Of a registered buffer.
  std::byte* buffer(int buffer) const;

  void initialize(const Initializer& initializer);  // Sharder::initialize
  /// The same of one parameter.
  void initialize(int parameter, const Initializer& initializer);
  /// `source` has all elements of the parameter; each rank takes what it owns.
  void assign(int parameter, const void* source, DType dtype);
  /// The same from `root`, which broadcasts; the others' source is not read.
  void assign_from(Rank root, int parameter, const void* source, DType dtype);
  /// Sharder::local; throws UsageError for what rests on NVMe.
  LocalShard local(int parameter) const;
  /// Collective: the module's units, whole, in master precision.
  Summoned summon(int module);
  /// Takes this rank's slices of the summoned values as new parameters.
  void write_back(const Summoned& summoned);
  /// Blocks the host until everything issued is done.
  void synchronize();
  /// Copies device memory to the host, after all that was issued; blocks the host.
  void read(const void* source, void* destination, Bytes bytes);

  // State, for checkpoints; see sharder/training_state.hpp

  /// Where this rank's part of a flat lies; stays as long as the engine. What rests on NVMe is
  /// brought into memory, which blocks the host until all work of the engine is done, and stays
  /// there until a flat of another unit is asked for, or the next call.
  FlatState flat_state(int flat) const;
  /// Blocks the host until all that was issued is done. Throws UsageError naming `call` between
  /// micro-steps, inside a user function, and in a step that must be discarded.
  void begin_state_read(const char* call);
  /// The same, and nothing may hold parameters; what is then written to flat_state() becomes the
  /// parameters at the next call. Followed by restore(), or by nothing when only parameters change.
  void begin_state_write(const char* call);
  /// Call after begin_state_read().
  TrainingState training_state() const;
  /// Goes on from there. Throws UsageError when `state` is of another number of flats.
  void restore(const TrainingState& state);
  /// The optimizer as it is applied to each hyper-parameter group.
  const std::vector<Optimizer>& group_optimizers() const;
  /// In place of those, until the next set_optimizer(); throws UsageError for another number of
  /// groups or another functor type.
  void set_group_optimizers(const std::vector<Optimizer>& optimizers);
  const Options& options() const;      // as given
  Communicator& communicator() const;  // as given

  /// How what rests on NVMe is moved, as SlotStore::description() says; empty: nothing rests there.
  std::string nvme() const;
  /// The most elements that were ever gathered at once on this rank, units prefetched included.
  Elements peak_gathered_elements() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flatshard
