// Which updates of a step in backward are made while backward still runs.
#pragma once

#include <flatshard/core/host_stream.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace flatshard::detail {

/// The host updates units in the order in which backward leaves them. Those that it cannot finish
/// meanwhile are better left until the end, and then made in the order in which the next forward
/// needs them. How many it can is learned from earlier steps: from the time that the lane waited
/// for gradients with nothing else to do. That is known to this rank alone, and changes no bit.
class UpdatePace {
 public:
  /// Of so many units that train.
  explicit UpdatePace(int units) : units_(units), early_(units / 2) {}

  /// A step begins; by the thread that issues work, as all but the tasks.
  void begin_step() { issued_ = 0; }
  /// Whether the next unit is to be updated while backward runs.
  bool next_is_early() { return issued_++ < early_.load(); }

  /// To be issued to the lane: a unit's gradient has arrived; what there was to do is done.
  void note_arrival(HostStream& lane) {
    lane.enqueue([this] { idle_ += Clock::now() - busy_until_; });
  }
  void note_work(HostStream& lane, bool early) {
    lane.enqueue([this, early] {
      busy_until_ = Clock::now();
      if (early) idle_ = {};
    });
  }
  /// The updates that were left, `late` of them, begin or have ended.
  void note_late(HostStream& lane) {
    lane.enqueue([this] { late_since_ = Clock::now(); });
  }
  void note_end(HostStream& lane, int late) {
    lane.enqueue([this, late] { learn(late); });
  }

 private:
  using Clock = std::chrono::steady_clock;

  void learn(int late) {
    if (late > 0) each_ = std::max(Clock::duration{1}, (Clock::now() - late_since_) / late);
    busy_until_ = Clock::now();
    const int early = early_.load();
    const bool was_idle = idle_ > each_, was_busy = idle_ < each_ / 4 || each_ == Clock::duration{};
    if (late > 0 && was_idle)
      early_.store(std::min(units_, early + std::max(1, static_cast<int>(idle_ / each_ / 2))));
    else if (early > 0 && was_busy)
      early_.store(early - 1);
  }

  int units_;
  int issued_ = 0;
  std::atomic<int> early_;
  Clock::time_point busy_until_, late_since_;  // of the lane, as the rest
  Clock::duration idle_{}, each_{};
};

}  // namespace flatshard::detail
