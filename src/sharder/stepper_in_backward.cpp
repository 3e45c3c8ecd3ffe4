// A step in backward: units are updated as their gradients arrive.
#include <algorithm>

#include "stepper.hpp"

namespace flatshard::detail {

void Stepper::begin_step(Divisor divisor) {
  StepSettings settings = settings_;
  settings.on_nonfinite = OnNonFinite::Apply;
  decide(control_->step, settings, divisor, static_cast<std::int64_t>(runtime_.plan.flats.size()),
         nullptr, nullptr);
  late_units_.clear();
  updated_late_ = 0;
  if (pace_) pace_->begin_step();
}

void Stepper::update_unit(int unit, bool at_once) {
  gatherer_.outdate(unit);  // on every rank alike, whenever the update is made
  if (!pace_) return update_in_backward(unit);
  if (relay_.is_empty()) pace_->note_arrival(host_stream(lane_.stream));
  if (at_once)
    update_in_backward(unit);
  else
    late_units_.push_back(unit);
  pace_->note_work(host_stream(lane_.stream));
}

void Stepper::update_in_backward(int unit) {
  gatherer_.order_before_writes();
  follow_reductions();
  read_masters(unit);
  update_flats(unit, nullptr);
  gatherer_.publish(unit, true);
}

/// In the order in which the next forward needs them.
void Stepper::update_late_units() {
  if (late_units_.empty()) return;
  if (updated_late_ == 0) pace_->note_late(host_stream(lane_.stream));
  updated_late_ += static_cast<int>(late_units_.size());
  std::sort(late_units_.rbegin(), late_units_.rend());
  while (!late_units_.empty()) {  // each once, also if issuing one throws
    const int unit = late_units_.back();
    late_units_.pop_back();
    update_in_backward(unit);
  }
}

void Stepper::finish_updates() {
  update_late_units();
  if (pace_) pace_->note_end(host_stream(lane_.stream), updated_late_);
  for (int unit = 0; unit < static_cast<int>(runtime_.plan.units.size()); ++unit)
    gatherer_.publish_on_host(unit);
}

/// The norm goes before the updates that are left, so that the device need not wait for these.
std::int64_t Stepper::end_step(Divisor divisor) {
  norm_.measure();
  finish_updates();
  StepReport* report = &control_->reports[static_cast<std::size_t>(steps_ % report_ring)];
  decide(control_->reported, settings_, divisor, 0, nullptr, report);
  return finish_report(*report);
}

}  // namespace flatshard::detail
