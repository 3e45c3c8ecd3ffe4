// Which updates of a step in backward are made while backward still runs.
#pragma once

#include <flatshard/core/host_stream.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace flatshard::detail {

/// Backward leaves units in the reverse of the order in which the next forward needs them. Those
/// that the host cannot update meanwhile are spread evenly over the model and left until the end,
/// when they are updated in forward's order: so the next forward has something to compute between
/// any two that it waits for, and the host works through both. How many to leave is learned from
/// earlier steps: from how long the host waited for gradients with nothing else to do, in backward,
/// and between the last update of a step and the first gradient of the next (there the least ever
/// seen is what it must). That is known to this rank alone, and changes no bit.
template <class Clock = std::chrono::steady_clock>
class UpdatePace {
 public:
  /// Of so many units that train.
  explicit UpdatePace(int units) : units_(units), early_(units / 2) {}

  /// A step begins; by the thread that issues work, as all but the tasks.
  void begin_step() {
    issued_ = 0;
    planned_ = early_.load();
  }
  /// Whether the next unit, which is about to be reduced, is updated while backward runs; call once
  /// for each.
  bool decide_next() {
    const auto early_of = [this](std::int64_t units) {
      return (planned_ * units + units_ / 2) / units_;
    };
    const std::int64_t before = early_of(issued_++);
    return early_of(issued_) > before;
  }

  /// To be issued to the lane: the gradient of the unit that was asked for has arrived.
  void note_arrival(HostStream& lane) {
    lane.enqueue([this, first = issued_ == 1] {  // decide_next() has counted it
      const Duration waited = Clock::now() - busy_until_;
      if (first)
        begin_backward(waited);
      else
        idle_ += waited;
    });
  }
  /// What there was to do with it is done.
  void note_work(HostStream& lane) {
    lane.enqueue([this] { busy_until_ = Clock::now(); });
  }
  /// The updates that were left, `late` of them, begin or have ended.
  void note_late(HostStream& lane) {
    lane.enqueue([this] { late_since_ = Clock::now(); });
  }
  void note_end(HostStream& lane, int late) {
    lane.enqueue([this, late] { learn(late); });
  }

 private:
  using Duration = typename Clock::duration;

  /// The host has waited all of forward, after what was left of the step before.
  void begin_backward(Duration waited) {
    idle_ = {};
    if (each_ == Duration{}) return;  // the first step
    waited_ = waited;
    least_ = std::min(least_, waited);
  }
  /// More early once backward left the host idle for 3/4 of an update longer than forward did
  /// needlessly: so many that half of that is used, because the others then arrive later. One fewer
  /// when forward did by two updates longer, or when backward left no idle time at all, so that its
  /// last updates are late, unless the host is what steps wait for: then forward leaves it little
  /// more than a unit takes.
  void learn(int late) {
    busy_until_ = Clock::now();
    if (late > 0) each_ = std::max(Duration{1}, (busy_until_ - late_since_) / late);
    const int early = early_.load();
    const Duration slack = waited_ > least_ ? waited_ - least_ : Duration{};
    const Duration more = idle_ - slack;
    const bool behind = idle_ <= each_ / 8 && waited_ > each_ * 2;
    if (late > 0 && more > each_ * 3 / 4)
      early_.store(std::min(units_, early + more_units(more)));
    else if (early > 0 && (behind || idle_ <= slack - 2 * each_))
      early_.store(early - 1);
  }

  int more_units(Duration idle) const {
    const auto units = static_cast<double>(idle / each_) / 2;
    return static_cast<int>(std::clamp(units, 1.0, std::max(1.0, static_cast<double>(units_))));
  }

  int units_;
  int issued_ = 0, planned_ = 0;  // of this step
  std::atomic<int> early_;
  typename Clock::time_point busy_until_, late_since_;  // of the lane, as the rest
  Duration idle_{}, waited_{}, each_{};                 // in backward, in forward; of an update
  Duration least_ = Duration::max();
};

}  // namespace flatshard::detail
