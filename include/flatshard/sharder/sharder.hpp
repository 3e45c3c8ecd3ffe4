// Sharder<Strategy, Precision, Offload>: the typed shell over the engine.
#pragma once

#include <flatshard/policy/rules.hpp>
#include <flatshard/sharder/views.hpp>

#include <span>
#include <utility>

namespace flatshard {

/// Shards a model over the ranks of a communicator and trains it. Policies choose what is sharded,
/// in which dtypes, and where it rests; everything else is an Option.
///
/// Every rank makes the same calls in the same order. One thread per rank makes them. Calls only
/// enqueue work (on an inline host stream it is done at once); those whose names say wait or
/// synchronize (and construction, summon_full, assign) block the host. step() waits for the report
/// of the step before the last. With parts on NVMe, or in pageable memory beside a CUDA device,
/// initialize, forward, backward, step and their primitives may wait for the device as well.
///
/// After an exception from a forward function the Sharder is as if the call had not been made;
/// after one from a backward function the step must be dropped on every rank (discard_step).
template <StrategyPolicy Strategy = strategy::FullShard,
          PrecisionPolicy Precision = precision::Full<float>, OffloadPolicy Offload = offload::None>
class Sharder {
  static_assert(CheckedRules<Strategy, Precision, Offload>::value);

 public:
  using strategy_type = Strategy;    // the policy
  using precision_type = Precision;  // the policy
  using offload_type = Offload;      // the policy
  /// Element of summoned parameters.
  using master_type = typename Precision::master;
  /// Element of weights and gradients.
  using compute_type = typename Precision::compute;

  /// What make_plan is asked for this type.
  static PlanRequest plan_request(int world, int optimizer_states, bool canonical_reduction = true,
                                  bool needs_scratch = false) {
    return {strategy_traits<Strategy>(),
            precision_traits<Precision>(),
            offload_traits<Offload>(),
            world,
            optimizer_states,
            canonical_reduction,
            needs_scratch};
  }
  /// The Plan that a Sharder of this type would carry out; needs no communicator and no device.
  static Plan plan_for(const Model& model, const Optimizer& optimizer, int world,
                       const Options& options = {}) {
    return make_plan(model, plan_request(world, optimizer.states()), options);
  }

  /// Collective over `communicator` (which, with Options::device and Options::compute_stream, must
  /// outlive the Sharder). Parameters are zero until initialize or assign. Throws UsageError for
  /// what cannot be done, before anything is allocated.
  Sharder(Communicator& communicator, const Model& model, const Optimizer& optimizer,
          const Options& options = {})
      : rank_(communicator.rank()),
        engine_(communicator, model, optimizer,
                plan_request(communicator.size(), optimizer.states(),
                             communicator.canonical_reduction(), communicator.needs_scratch()),
                options) {}

  const Plan& plan() const { return engine_.plan(); }     // what is carried out
  const Model& model() const { return engine_.model(); }  // a copy of yours
  Engine& engine() { return engine_; }                    // untyped core

  // Parameters ------------------------------------------------------------------------------------

  /// Every rank fills what it owns; same values for every world size and strategy. All parameters,
  /// or one. Random initializers give parameters of one model different values: they are keyed by
  /// the canonical index.
  void initialize(const Initializer& initializer) { engine_.initialize(initializer); }
  /// The same for one parameter.
  void initialize(Parameter parameter, const Initializer& initializer) {
    engine_.initialize(parameter.index, initializer);
  }
  /// Every rank passes the whole parameter, row-major, and keeps what it owns (rounded to the
  /// master dtype). Blocks the host until it is copied.
  template <class Element>
  void assign(Parameter parameter, std::span<const Element> values) {
    expect_count(parameter, values.size());
    engine_.assign(parameter.index, values.data(), dtype_of<Element>);
  }
  /// Collective: the same with the values of `root`, which broadcasts them; the other ranks may
  /// pass none. Holds the whole parameter in device memory meanwhile.
  template <class Element>
  void assign_from(Rank root, Parameter parameter, std::span<const Element> values) {
    if (rank_ == root) expect_count(parameter, values.size());
    engine_.assign_from(root, parameter.index, values.data(), dtype_of<Element>);
  }
  /// Collective: calls `function(FullParameters<master_type>)` with the whole parameters of the
  /// module's units in master precision. With write_back each rank takes its slices of what the
  /// function left (all ranks must leave the same). Allocates the whole units; blocks the host.
  template <class Function>
  void summon_full(const Module& module, Function&& function, bool write_back = false) {
    const Summoned summoned = engine_.summon(module.index());
    std::forward<Function>(function)(FullParameters<master_type>(engine_, summoned));
    if (write_back) engine_.write_back(summoned);
  }
  /// What this rank holds of the parameter; throws UsageError for what rests on NVMe.
  LocalShard local(Parameter parameter) const { return engine_.local(parameter.index); }
  /// A registered buffer: whole on every rank, never touched by the Sharder.
  template <class Element>
  TensorRef<Element> buffer(RegisteredBuffer buffer) const {
    const BufferSpec& spec = engine_.buffer_spec(buffer.index);
    FLATSHARD_EXPECTS(spec.dtype == dtype_of<Element>,
                      "buffer '" + spec.name + "' is " + std::string(name_of(spec.dtype)));
    return {reinterpret_cast<Element*>(engine_.buffer(buffer.index)), spec.shape};
  }

  // A step ----------------------------------------------------------------------------------------

  /// Begins a micro-step, the step's last one if options.last; step() may follow only that. A step
  /// of one micro-step needs no call. Throws UsageError beyond Options::max_micro_steps.
  void micro_step(const MicroStepOptions& options) { engine_.begin_micro_step(options); }
  /// Which of the world size * count micro-batches of the global batch this rank must process in
  /// micro-step `index` of `count`, so that sums are formed in the promised order.
  Elements micro_batch(int index, int count) const { return engine_.micro_batch(index, count); }

  /// Gathers the module's parameters and calls function(Weights<compute_type>). What is gathered
  /// per use is released after the last of the ModuleOptions::uses calls of this micro-step.
  template <class Function>
  void forward(const Module& module, Function&& function) {
    call(Phase::Forward, module.index(),
         [&] { std::forward<Function>(function)(Weights<compute_type>(engine_, module.index())); });
  }
  /// Gathers the module's parameters, calls function(Weights<compute_type>,
  /// Gradients<compute_type>), and reduces the gradients after the last use.
  template <class Function>
  void backward(const Module& module, Function&& function) {
    call(Phase::Backward, module.index(), [&] {
      std::forward<Function>(function)(Weights<compute_type>(engine_, module.index()),
                                       Gradients<compute_type>(engine_, module.index()));
    });
  }
  /// Forward without backward to come: gathers, calls, releases; no part of a step.
  template <class Function>
  void evaluate(const Module& module, Function&& function) {
    const Gathered<compute_type> gathered = gather(module);
    std::forward<Function>(function)(gathered.weights());
  }

  /// Reduces what is left, measures, clips, updates, publishes. Waits for the report of the step
  /// before the last, and throws what that says is an error; with parts on NVMe also for what was
  /// read and, with the optimizer there, for all of backward.
  PendingReport step(const StepOptions& options = {}) { return {engine_, engine_.step(options)}; }
  /// Captures a whole step, its last call step(), into a CUDA graph; nothing of it runs or counts.
  /// Needs Options::capturable and a CUDA device, between steps; a step of the same calls must have
  /// run before. Blocks the host. Ranks of several devices cannot be captured: NCCL's part of a
  /// step is begun by threads of its own.
  template <class Function>
  CudaGraph capture(Function&& step) {
    return engine_.capture([&] { step(); });
  }
  /// Launches a captured step on the compute stream, as if its calls were made now: with the
  /// hyper-parameters set last, and with whatever the memory holds that the user's kernels read.
  PendingReport replay(CudaGraph& captured) { return {engine_, engine_.replay(captured)}; }
  /// Drops the micro-steps since the last step, on every rank. With step_in_backward, units whose
  /// last backward is over have been updated, and stay so.
  void discard_step() { engine_.discard_step(); }
  /// Hyper-parameters from the next step on; the optimizer's type must stay. With
  /// Options::capturable waits for the upload of those set four calls before.
  void set_optimizer(const Optimizer& optimizer) { engine_.set_optimizer(optimizer); }
  /// The loss scale of this step's backward, in device memory; 1 without loss scaling. Read it in a
  /// forward or backward function, or on the compute stream after one: before, the last step may
  /// still be about to move it.
  TensorRef<const float> loss_scale() const { return {engine_.loss_scale(), {}}; }
  /// Blocks the host until everything issued is done.
  void synchronize() { engine_.synchronize(); }

  // Primitives, for control flow that fits no function --------------------------------------------

  /// Holds the module's parameters whole for as long as the handle lives.
  Gathered<compute_type> gather(const Module& module) { return {engine_, module.index()}; }
  /// Gathers ahead of use if a buffer is free.
  void prefetch(const Module& module) { engine_.prefetch(module.index()); }
  /// Gradients of this micro-step for a backward of the module; call reduce() when it has run.
  Gradients<compute_type> gradients(const Module& module) {
    engine_.open_gradients(module.index());
    return {engine_, module.index()};
  }
  /// One backward use of the module is done; after the last its gradients are reduced.
  void reduce(const Module& module) { engine_.reduce(module.index()); }

 private:
  void expect_count(Parameter parameter, std::size_t count) const {
    const ParameterSpec& spec = engine_.parameter_spec(parameter.index);
    FLATSHARD_EXPECTS(static_cast<Elements>(count) == spec.numel(),
                      "assign: parameter '" + spec.name + "' has " + std::to_string(spec.numel()) +
                          " elements, not " + std::to_string(count));
  }

  template <class Function>
  void call(Phase phase, int module, Function&& function) {
    engine_.enter(phase, module);
    try {
      function();
    } catch (...) {
      engine_.leave(phase, module, false);
      throw;
    }
    engine_.leave(phase, module, true);
  }

  Rank rank_;
  Engine engine_;
};

}  // namespace flatshard
