// The optimizer step: norm, decision, update, publication, report.
#pragma once

#include <flatshard/ops/optimizer.hpp>
#include <flatshard/sharder/training_state.hpp>

#include <algorithm>
#include <exception>
#include <mutex>

#include "gatherer.hpp"
#include "gradient_relay.hpp"
#include "norm.hpp"
#include "plan_build.hpp"
#include "update_pace.hpp"

namespace flatshard::detail {

/// Divisor of the mean: a value, or a double in device memory.
struct Divisor {
  double value = 1;
  const double* device = nullptr;
};

/// Throws UsageError for an optimizer and options that no step of this Plan can have.
void check_step(const Plan& plan, const Optimizer& optimizer, const Options& options,
                DeviceKind device);

/// How far the reduce stream of a host device came, told to the host stream.
class Reductions {
 public:
  /// Of the rank's thread: the number of the mark that it issues next.
  std::int64_t next() { return ++issued_; }
  /// All work before the mark was done.
  void reach(std::int64_t number);
  /// It was not.
  void fail(const std::exception_ptr& reason);
  /// Throws why not.
  void expect(std::int64_t number) const;

 private:
  std::int64_t issued_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  std::int64_t reached_ = 0;
  std::exception_ptr failure_;
};

/// Everything runs on the reduce stream, updates in host memory on the host stream (publication on
/// the gather stream). What blocks says so.
class Stepper {
 public:
  /// What check_step lets pass.
  Stepper(Runtime& runtime, Gatherer& gatherer, GradientNorm& norm, GradientRelay& relay,
          const Optimizer& optimizer, const Options& options);

  /// Replaces the hyper-parameters from the next update on; the functor's type must stay. When
  /// capturable, blocks until the upload of those set four calls before is done.
  void set_optimizer(const Optimizer& optimizer);

  /// A whole step on the accumulated gradients; `takes_part` says per flat whether it was used.
  /// Returns the number of the step.
  std::int64_t step(Divisor divisor, const std::vector<bool>& takes_part);

  /// Step in backward: decides the coefficient before any gradient is known, sends it (the caller
  /// orders between), then updates unit by unit, then measures and reports.
  void begin_step(Divisor divisor);
  /// What the updates read of the decision follows them to the host.
  void send_decision();
  /// Decides whether the unit that is closed next is updated at once; call once for each.
  bool decide_next() { return !pace_ || pace_->decide_next(); }
  void update_unit(int unit, bool at_once);
  /// Updates what update_unit() left until the end, and publishes what it could not. Of end_step(),
  /// and of a step that is discarded: ranks may have left different units.
  void finish_updates();
  /// Units wait for their update, or this one does; all are updated now. Which wait is known to
  /// this rank alone, and must not be seen.
  bool leaves_units() const { return !late_units_.empty(); }
  bool leaves(int unit) const {
    return std::find(late_units_.begin(), late_units_.end(), unit) != late_units_.end();
  }
  void update_late_units();
  std::int64_t end_step(Divisor divisor);

  /// Blocks until the report of step `number` is there; throws what it says is an error (once).
  StepReport wait(std::int64_t number);
  std::int64_t steps() const { return steps_; }
  /// What was concluded so far, and where the loss scale stands; blocks the host.
  TrainingState state() const;
  /// Goes on from `state` as if its steps had been made here; blocks the host.
  void restore(const TrainingState& state);
  /// Blocks until at most one step is unfinished; throws what wait() throws.
  void wait_for_earlier();
  /// Per hyper-parameter group, as it is applied.
  const std::vector<Optimizer>& group_optimizers() const { return group_optimizers_; }
  /// Until the next set_optimizer(). As many as there are groups, of the same functor type. Blocks
  /// as that does.
  void set_group_optimizers(const std::vector<Optimizer>& optimizers);
  /// While a step is captured it counts as none, and leaves no report.
  void begin_capture();
  void end_capture() { capturing_ = false; }
  /// A captured step has been launched; the reduce stream has been ordered after it.
  std::int64_t count_replay();
  const float* loss_scale() const { return &control_->step.loss_scale; }
  StepControl& control() { return control_->step; }
  std::int64_t* times() { return times_; }

 private:
  /// Of a slice: elements [from, from + count), where their gradient is and their copy goes.
  struct Part {
    Elements from, count;
    const std::byte* gradient;
    std::byte* copy;
  };

  void locate_control();
  void make_events();
  void take_host_memory();
  void choose_functions();
  void decide(StepControl& control, const StepSettings& settings, Divisor divisor,
              std::int64_t flats, const std::vector<bool>* takes_part, StepReport* report);
  /// Work on the host stream from now on runs only if what the reduce stream was given so far did
  /// not fail: an error does not travel over events.
  void follow_reductions();
  void update_flats(int unit, const std::vector<bool>* takes_part);
  void update_flat(int flat);
  void update_part(int flat, Elements from, Elements count);
  void issue_part(int flat, const Part& part);
  StepArguments arguments_of(int flat, const StepRun& run) const;
  void read_masters(int unit);
  void update_in_backward(int unit);
  void round_masters(int flat, Elements from, Elements count, std::byte* staged);
  /// In host memory, of the step that is slot `slot` of the rings.
  std::int64_t* host_takes_part(std::int64_t slot) const;
  StepReport* host_report(std::int64_t slot) const;
  std::int64_t finish_report(const StepReport& on_device);
  void upload_functors();
  void throw_error(const StepReport& report) const;

  struct Report {
    std::unique_ptr<Event> ready;
    bool raised = false;
  };

  Runtime& runtime_;
  Gatherer& gatherer_;
  GradientNorm& norm_;
  GradientRelay& relay_;
  Optimizer optimizer_;
  std::vector<GroupOptions> groups_;
  std::vector<Optimizer> group_optimizers_;  // per hyper-parameter group
  std::vector<StepFunctions> functions_;     // per flat
  std::vector<StepArguments> ranges_;        // of the flat that is being updated
  StepSettings settings_;
  std::uint64_t seed_;
  bool in_backward_;
  Lane lane_;  // of the updates
  DeviceControl* control_;
  StepScalars* scalars_;      // that updates read
  std::int64_t* step_times_;  // the same
  std::int64_t* times_;
  std::int64_t* takes_part_;
  Buffer host_takes_part_;      // (report ring, flats) int64
  Buffer host_reports_;         // (report ring) StepReport
  std::byte* device_functors_;  // (groups, max_functor_bytes); null unless capturable
  Buffer host_functors_;        // (report ring, groups, max_functor_bytes)
  std::array<std::unique_ptr<Event>, report_ring> uploaded_;
  std::int64_t uploads_ = 0;
  bool capturing_ = false;
  Reductions reductions_;
  std::unique_ptr<Event> reduced_;    // recorded on the reduce stream
  std::unique_ptr<Event> updated_;    // recorded on the host stream
  std::optional<UpdatePace<>> pace_;  // none: every unit is updated when backward leaves it
  std::vector<int> late_units_;       // of this step, closed and not updated yet
  int updated_late_ = 0;              // of this step
  std::unique_ptr<Event> written_;    // recorded on the disk stream
  std::unique_ptr<Event> decided_;    // recorded on the reduce stream
  std::array<Report, report_ring> reports_;
  std::int64_t steps_ = 0;
  std::int64_t restored_ = 0;  // of these: made by an earlier run, whose reports are gone
};

}  // namespace flatshard::detail
