// The state of an engine: its parts and where the step stands.
#pragma once

#include <flatshard/sharder/engine.hpp>

#include <string>

#include "call_order.hpp"
#include "gatherer.hpp"
#include "reducer.hpp"
#include "stepper.hpp"

namespace flatshard {

struct Engine::Parts {
  Parts(Communicator& communicator, const Model& model, const Optimizer& optimizer,
        const PlanRequest& request, const Options& options);
  ~Parts() { runtime.drain(); }  // before any part goes: queued work points into them

  /// Uses of a unit within the current micro-step.
  struct UnitUse {
    int forward = 0;
    int backward = 0;
    bool alive[2] = {false, false};  // per phase: held from its first to its last use
    bool opened = false;             // gradients
    bool closed = false;             // reduced
  };

  const Model model;
  const Options options;
  std::unique_ptr<Device> own_device;
  Device& device;
  detail::Runtime runtime;
  struct Agreed {};
  Agreed agreed;  // the ranks are, before anything is written to the arena
  detail::GradientNorm norm;
  detail::Gatherer gatherer;
  detail::GradientRelay relay;
  detail::Reducer reducer;
  detail::Stepper stepper;
  detail::CallOrder order;

  std::vector<UnitUse> uses;        // per unit
  std::vector<bool> takes_part;     // per flat: to be updated in this step
  int micro_step = -1;              // index of the open micro-step; -1: none since the last step
  bool last = false;                // it is the step's last
  int open_calls = 0;               // user functions that are running
  bool stale = false;               // masters were set: compute copies must follow
  bool state_writes = false;        // what flat_state() gives is written, until the next call
  std::string broken;               // why the step must be discarded
  std::unique_ptr<Event> computed;  // recorded on the compute stream
  std::unique_ptr<Event> decided;   // on the reduce stream: what step in backward multiplies by
  std::unique_ptr<Event> gathered;  // on the gather stream: the end of a captured step

  /// Units that calls of `module` need; throws UsageError when the model has no such module.
  const std::vector<int>& touched(int module) const;
  const Flat& flat_of(int parameter) const;
  /// Where a parameter lies in its flat's compute-dtype memory.
  struct Place {
    int flat;
    bool called;   // the module's calls touch its unit
    Bytes offset;  // of its first element
  };
  Place place_of(int parameter, int module) const;
  UnitUse& use(int unit) { return uses[static_cast<std::size_t>(unit)]; }

  /// Throws UsageError when `call` is made inside a forward or backward function.
  void expect_no_open_call(const char* call) const;
  /// Masters are about to be set outside a step: nobody may be looking at them.
  void prepare_writes(const char* call);
  /// Throws when a stream has failed or the step is broken; refreshes stale copies.
  void prepare();
  void open_micro_step(bool is_last);
  void close_micro_step();
  void keep_alive(Phase phase, int unit);
  void end_life(Phase phase, int unit);
  void count_use(Phase phase, int unit);
  void prefetch_next(int limit);
  void open_gradients(int module, int unit);
  void mark_used(int module);
  void close_unit(int unit);
  /// Reduces its gradients, and updates it if the step is in backward.
  void finish_unit(int unit);
  /// Runs what cannot be run again when it throws: then the step must be discarded.
  template <class Act>
  void breaking_step(const char* what, const Act& act) {
    try {
      act();
    } catch (...) {
      broken = std::string(what) + " did not complete";
      throw;
    }
  }
  /// What step() does once its arguments are checked; returns the step's number.
  std::int64_t update(const detail::Divisor& divisor);
  detail::Divisor default_divisor() const;
  /// What a step in backward has left to be updated: before anything is set that it would meet, or
  /// read that it changes.
  void update_late_units();
  /// The same before a unit is gathered, if it is one of them.
  void update_if_left(int unit) {
    if (stepper.leaves(unit)) update_late_units();
  }
  /// Parameters are about to be written by the reduce stream.
  void order_parameter_writes();
  void take(const void* source, DType dtype, void* destination, DType to, Elements count,
            Tier tier);
  /// Compute copies and whole parameters follow the masters.
  void refresh();
  void refresh_flat(int flat);
  /// `whole` = all of the flat's masters, of which this rank has `own`.
  void summon_flat(const Flat& flat, const std::byte* own, void* whole);
};

}  // namespace flatshard
