#pragma once

#include <flatshard/ops/step_control.hpp>

#include "metrics.hpp"
#include "options.hpp"
#include "progress.hpp"

namespace train_gpt {

/// Where rank 0 tells how training goes.
class Reporter {
 public:
  explicit Reporter(const Options& options)
      : file_(options.metrics),
        progress_(options.steps),
        throughput_(options.steps, options.batch * options.model.context) {}

  /// Where parts of the model rest on NVMe: how they are moved.
  void says_how(const std::string& nvme) { progress_.says_how(nvme); }
  /// Steps that an earlier run has made.
  void start_after(std::int64_t steps) { throughput_.start_after(steps); }
  void issued() { throughput_.issued(); }
  /// `worker` says what else there is to tell, from the step's tokens per second.
  template <class Worker>
  void add(double loss, const flatshard::StepReport& report, const Worker& worker) {
    recent_.add(loss);
    const double speed = throughput_.tokens_per_s();
    const StepMetrics metrics{report.step,
                              loss,
                              report.grad_norm,
                              report.skipped,
                              report.scale_used,
                              speed,
                              worker.device_metrics(speed)};
    file_.write(metrics);
    progress_.show(metrics, throughput_.seconds_left(report.step));
  }
  void finish(std::uint64_t params_hash) {
    file_.finish(params_hash);
    progress_.finish(recent_.mean(), throughput_.seconds(), params_hash);
  }

 private:
  MetricsFile file_;
  Progress progress_;
  Throughput throughput_;
  RecentLoss recent_;
};

}  // namespace train_gpt
