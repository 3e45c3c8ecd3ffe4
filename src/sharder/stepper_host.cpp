// What a step exchanges with the host: hyper-parameters, reports, captured steps.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "stepper.hpp"

namespace flatshard::detail {

/// The rings of host memory keep what is still on its way.
void Stepper::upload_functors() {
  if (device_functors_ == nullptr) return;
  const std::int64_t slot = uploads_++ % report_ring;
  Event& uploaded = *uploaded_[static_cast<std::size_t>(slot)];
  uploaded.synchronize();
  const Bytes bytes = runtime_.plan.device_groups * Bytes{max_functor_bytes};
  std::byte* host = static_cast<std::byte*>(host_functors_.data()) + slot * bytes;
  std::byte* next = host;
  for (const Optimizer& optimizer : group_optimizers_)
    next = std::copy_n(optimizer.functor().data(), max_functor_bytes, next);
  runtime_.device.copy(host, device_functors_, bytes, runtime_.reduce);
  runtime_.reduce.record(uploaded);
}

void Stepper::begin_capture() {
  FLATSHARD_EXPECTS(device_functors_ != nullptr,
                    "a step can be captured only with Options::capturable");
  for (const Flat& flat : runtime_.plan.flats)
    FLATSHARD_EXPECTS(!flat.skip_when_unused,
                      "a captured step updates the same parameters each time: skip_when_unused "
                      "cannot be part of it");
  capturing_ = true;
}

std::int64_t Stepper::count_replay() { return finish_report(control_->step.report); }

std::int64_t* Stepper::host_takes_part(std::int64_t slot) const {
  const auto flats = static_cast<std::int64_t>(runtime_.plan.flats.size());
  return static_cast<std::int64_t*>(host_takes_part_.data()) + slot * flats;
}

StepReport* Stepper::host_report(std::int64_t slot) const {
  return static_cast<StepReport*>(host_reports_.data()) + slot;
}

/// `on_device` is in device memory; the host reads the copy.
std::int64_t Stepper::finish_report(const StepReport& on_device) {
  if (capturing_) return steps_;
  const std::int64_t slot = steps_ % report_ring;
  Report& report = reports_[static_cast<std::size_t>(slot)];
  runtime_.device.copy(&on_device, host_report(slot), sizeof(StepReport), runtime_.reduce);
  report.raised = false;
  runtime_.reduce.record(*report.ready);
  return ++steps_;
}

StepReport Stepper::wait(std::int64_t number) {
  const bool made_here = number > restored_ && number <= steps_;
  FLATSHARD_EXPECTS(made_here && number > steps_ - report_ring,
                    fmt::format("the report of step {} is gone or not there yet: the last step is "
                                "{}, and {} reports are kept",
                                number, steps_, report_ring));
  const auto slot = static_cast<std::size_t>((number - 1) % report_ring);
  reports_[slot].ready->synchronize();
  runtime_.check();
  const StepReport report = *host_report(static_cast<std::int64_t>(slot));
  if (report.error != StepError::None && !reports_[slot].raised) {
    reports_[slot].raised = true;
    throw_error(report);
  }
  return report;
}

void Stepper::throw_error(const StepReport& report) const {
  if (report.error == StepError::BadDivisor)
    throw UsageError(
        fmt::format("step {}: the gradient divisor is not a finite number above zero; "
                    "nothing was updated",
                    report.step));
  if (report.error == StepError::ScaleAtMinimum)
    throw NonFiniteError(
        fmt::format("step {}: gradients overflow at the minimum loss scale {}; "
                    "nothing was updated",
                    report.step, report.scale_used));
  throw NonFiniteError(fmt::format(
      "step {}: gradients are not finite (norm {}); {}", report.step, report.grad_norm,
      in_backward_ ? "units may already have been updated in backward" : "nothing was updated"));
}

}  // namespace flatshard::detail
