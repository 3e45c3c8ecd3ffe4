#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace train_gpt {
namespace {

std::string minutes_and_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

void RecentLoss::add(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > 20) losses_.pop_front();
}

double RecentLoss::mean() const {
  if (losses_.empty()) return 0;
  return std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
}

Progress::Progress(std::int64_t steps) : Progress{stdout, isatty(STDOUT_FILENO) != 0, steps} {}

void Progress::says_how(const std::string& nvme) {
  if (!nvme.empty()) fmt::print(out_, "NVMe: {}\n", nvme);
}

void Progress::show(const StepMetrics& m, double seconds_left) {
  const bool is_end = m.step == 1 || m.step == steps_;
  if (!is_terminal_ && !is_end && m.step % interval != 0) return;
  const std::string line =
      fmt::format("step {}/{}  loss {:.4f}{}  {:.0f} tokens/s  {} left", m.step, steps_, m.loss,
                  m.skipped ? " (skipped)" : "", m.tokens_per_s, minutes_and_seconds(seconds_left));
  if (is_terminal_)
    fmt::print(out_, "\r{:<70}", line);
  else
    fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void Progress::finish(double mean_of_recent_losses, double seconds, std::uint64_t params_hash) {
  fmt::print(out_, "{}mean of the last 20 losses {:.4f}  {:.1f} s  params_hash {}\n",
             is_terminal_ ? "\n" : "", mean_of_recent_losses, seconds, hexadecimal(params_hash));
  std::fflush(out_);
}

double Throughput::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Throughput::issued() {
  const Clock::time_point now = Clock::now();
  between_issues_.push_back(now - last_issue_);
  last_issue_ = now;
}

double Throughput::tokens_per_s() {
  const Clock::time_point now = Clock::now();
  const auto passed = std::max(now - last_report_, between_issues_.front());
  last_report_ = now;
  between_issues_.pop_front();
  return static_cast<double>(tokens_per_step_) /
         std::max(std::chrono::duration<double>(passed).count(), 1e-9);
}

double Throughput::seconds_left(std::int64_t done) const {
  return seconds() / static_cast<double>(std::max<std::int64_t>(done - before_, 1)) *
         static_cast<double>(steps_ - done);
}

}  // namespace train_gpt
