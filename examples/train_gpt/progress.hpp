#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>

#include "metrics.hpp"

namespace train_gpt {

/// Mean of the last 20 losses: what a run is judged by.
class RecentLoss {
 public:
  void add(double loss);
  double mean() const;  // of none: 0

 private:
  std::deque<double> losses_;
};

/// Shows a run: on a terminal one line that is written over, elsewhere a line every `interval`
/// steps and at the ends. Not for several threads at once.
class Progress {
 public:
  static constexpr std::int64_t interval = 20;

  Progress(std::FILE* out, bool is_terminal, std::int64_t steps)
      : out_{out}, is_terminal_{is_terminal}, steps_{steps} {}

  /// Shows to standard output and asks whether that is a terminal.
  explicit Progress(std::int64_t steps);

  /// `seconds_left` is an estimate of the caller's.
  void says_how(const std::string& nvme);  // empty: nothing
  void show(const StepMetrics& metrics, double seconds_left);
  /// The last line: where the run ended.
  void finish(double mean_of_recent_losses, double seconds, std::uint64_t params_hash);

 private:
  std::FILE* out_;
  bool is_terminal_;
  std::int64_t steps_;
};

/// Measures throughput since its construction.
class Throughput {
 public:
  Throughput(std::int64_t steps, std::int64_t tokens_per_step)
      : steps_{steps}, tokens_per_step_{tokens_per_step} {}

  /// Steps that were made before are no measure of this run's speed.
  void start_after(std::int64_t steps) { before_ = steps; }
  double seconds() const;
  /// A step was issued; its report may come steps later, one per call.
  void issued();
  /// Of the step whose report came now: by the longer of the times since the report before and
  /// between the two issues. Reports that come together at the end are no steps made in no time.
  double tokens_per_s();
  /// After `done` steps, at the mean speed so far.
  double seconds_left(std::int64_t done) const;

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t steps_, tokens_per_step_, before_ = 0;
  Clock::time_point start_ = Clock::now(), last_issue_ = start_, last_report_ = start_;
  std::deque<Clock::duration> between_issues_;  // of steps without a report
};

}  // namespace train_gpt
