#include "stepper.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "units_ahead.hpp"

namespace flatshard::detail {

namespace {

LossScaler scaler_of(LossScaling scaling, const std::optional<ScaleSettings>& asked) {
  LossScaler standard = LossScaler::constant(1);
  if (scaling == LossScaling::Torch) standard = LossScaler::torch();
  if (scaling == LossScaling::DeepSpeed) standard = LossScaler::deepspeed();
  if (scaling == LossScaling::Static) standard = LossScaler::constant(65536);
  if (!asked) return standard;
  FLATSHARD_EXPECTS(scaling != LossScaling::Off && asked->rule == standard.settings.rule,
                    "Options::loss_scale is of another rule than the precision policy's "
                    "loss_scaling");
  validate(*asked);
  return LossScaler::make(*asked);
}

StepSettings settings_of(const Plan& plan, const Options& options) {
  StepSettings settings;
  settings.max_grad_norm = options.max_grad_norm;
  settings.norm = options.norm;
  settings.on_nonfinite = options.on_nonfinite;
  settings.scales_loss = plan.request.precision.loss_scaling != LossScaling::Off;
  validate(settings);
  return settings;
}

StepFunctions functions_for(DeviceKind device, const Plan& plan, const Optimizer& optimizer,
                            const StepRow& row) {
  if (device == DeviceKind::Cuda && !steps_on_host(plan)) return optimizer.cuda_step(row);
  return optimizer.host_step(row);
}

void check_offload(const Plan& plan, const Options& options) {
  if (plan.request.offload == OffloadTraits{}) return;
  const bool on_nvme = plan.request.offload.parameters == Tier::Nvme || steps_from_nvme(plan);
  FLATSHARD_EXPECTS(!on_nvme || !options.nvme.folder.empty(),
                    "offload to NVMe needs a folder on the disk to use: Options::nvme.folder");
  FLATSHARD_EXPECTS(!options.capturable,
                    "capturable: what rests off the device cannot be part of a captured step");
}

void check_step_in_backward(const Plan& plan, const Options& options) {
  if (!options.step_in_backward) return;
  const char* reason = nullptr;
  if (options.max_grad_norm > 0) reason = "clipping: the norm is known only after all of backward";
  if (plan.request.precision.loss_scaling != LossScaling::Off)
    reason = "loss scaling: an overflow is known only after all of backward";
  if (options.on_nonfinite == OnNonFinite::Skip)
    reason = "on_nonfinite = Skip: a step cannot be skipped when parts of it were taken";
  for (const Flat& flat : plan.flats)
    if (flat.skip_when_unused)
      reason = "skip_when_unused: who takes part is known only after all of backward";
  FLATSHARD_EXPECTS(reason == nullptr,
                    fmt::format("step_in_backward cannot be combined with {}", reason));
}

/// Updates in backward may be left until its end: they are made on this rank's host alone, and no
/// other rank waits for what they publish.
bool can_wait_for_end(const Plan& plan, const Options& options) {
  const bool publishes = plan.shard_group > 1 &&
                         std::any_of(plan.flats.begin(), plan.flats.end(), [](const Flat& flat) {
                           return flat.rests_whole && flat.requires_grad;
                         });
  return options.step_in_backward && plan.request.offload.optimizer == Tier::Host &&
         plan.request.offload.parameters != Tier::Nvme && !publishes;
}

int trainable_units(const Plan& plan) {
  return static_cast<int>(std::count_if(plan.units.begin(), plan.units.end(),
                                        [](const UnitPlan& unit) { return unit.trainable; }));
}

}  // namespace

void check_step(const Plan& plan, const Optimizer& optimizer, const Options& options,
                DeviceKind device) {
  check_step_in_backward(plan, options);
  check_offload(plan, options);
  settings_of(plan, options);
  scaler_of(plan.request.precision.loss_scaling, options.loss_scale);
  for (const GroupOptions& group : options.groups) optimizer.adjusted(group);
  for (const Flat& flat : plan.flats)
    if (flat.requires_grad) functions_for(device, plan, optimizer, flat.step_row);
}

Stepper::Stepper(Runtime& runtime, Gatherer& gatherer, GradientNorm& norm, GradientRelay& relay,
                 const Optimizer& optimizer, const Options& options)
    : runtime_(runtime),
      gatherer_(gatherer),
      norm_(norm),
      relay_(relay),
      optimizer_(optimizer),
      groups_(options.groups),
      settings_(settings_of(runtime.plan, options)),
      seed_(options.seed),
      in_backward_(options.step_in_backward),
      lane_(runtime.step_lane()),
      control_(reinterpret_cast<DeviceControl*>(runtime.address(Role::Control, control_state))),
      times_(reinterpret_cast<std::int64_t*>(runtime.address(Role::Control, control_times))),
      device_functors_(runtime.address(Role::Control, control_functors)) {
  locate_control();
  make_events();
  take_host_memory();
  choose_functions();
  late_units_.reserve(runtime.plan.units.size());
  if (can_wait_for_end(runtime.plan, options)) pace_.emplace(trainable_units(runtime.plan));
  set_optimizer(optimizer);
  const LossScaler scaler =
      scaler_of(runtime.plan.request.precision.loss_scaling, options.loss_scale);
  runtime.kernels.start_control(control_->step, scaler, runtime.reduce);
  runtime.kernels.start_control(control_->reported, scaler, runtime.reduce);
}

/// What updates read of a decision lies where they run.
void Stepper::locate_control() {
  takes_part_ = times_ == nullptr ? nullptr : times_ + runtime_.plan.flats.size();
  auto* on_host =
      reinterpret_cast<StepScalars*>(runtime_.address(Role::Control, control_host_step));
  scalars_ = on_host == nullptr ? &control_->step.scalars : on_host;
  step_times_ = on_host == nullptr ? times_ : reinterpret_cast<std::int64_t*>(on_host + 1);
}

void Stepper::make_events() {
  for (auto* event : {&updated_, &written_, &reduced_, &decided_}) *event = runtime_.make_event();
  for (auto& event : uploaded_) event = runtime_.make_event();
  for (Report& report : reports_) report.ready = runtime_.make_event();
}

void Stepper::take_host_memory() {
  MemoryResource& host = runtime_.device.host_memory();
  const Plan& plan = runtime_.plan;
  host_takes_part_ =
      Buffer(host, static_cast<Bytes>(report_ring * plan.flats.size() * sizeof(std::int64_t)));
  host_reports_ = Buffer(host, report_ring * static_cast<Bytes>(sizeof(StepReport)));
  if (device_functors_ != nullptr)
    host_functors_ = Buffer(host, report_ring * plan.device_groups * Bytes{max_functor_bytes});
}

void Stepper::choose_functions() {
  for (const Flat& flat : runtime_.plan.flats)
    functions_.push_back(flat.requires_grad ? functions_for(runtime_.device.kind(), runtime_.plan,
                                                            optimizer_, flat.step_row)
                                            : StepFunctions());
}

void Stepper::set_optimizer(const Optimizer& optimizer) {
  FLATSHARD_EXPECTS(optimizer_.has_type_of(optimizer),
                    fmt::format("the optimizer is '{}' and cannot become '{}': its states mean "
                                "something else",
                                optimizer_.name(), optimizer.name()));
  std::vector<Optimizer> adjusted;
  for (const GroupOptions& group : groups_) adjusted.push_back(optimizer.adjusted(group));
  group_optimizers_ = std::move(adjusted);
  optimizer_ = optimizer;
  upload_functors();
}

std::int64_t Stepper::step(Divisor divisor, const std::vector<bool>& takes_part) {
  norm_.measure();
  const bool everyone = std::find(takes_part.begin(), takes_part.end(), false) == takes_part.end();
  StepReport* report = &control_->reports[static_cast<std::size_t>(steps_ % report_ring)];
  decide(control_->step, settings_, divisor, static_cast<std::int64_t>(takes_part.size()),
         everyone ? nullptr : &takes_part, report);
  send_decision();
  constexpr std::array read{NvmePart::Optimizer, NvmePart::Gradient};
  UnitsAhead parts(runtime_, read, &takes_part);
  for (int unit = 0; unit < static_cast<int>(runtime_.plan.units.size()); ++unit) {
    parts.await(unit);
    update_flats(unit, &takes_part);
    gatherer_.publish(unit);
    parts.leave(unit);
  }
  return finish_report(*report);
}

void Stepper::decide(StepControl& control, const StepSettings& settings, Divisor divisor,
                     std::int64_t flats, const std::vector<bool>* takes_part, StepReport* report) {
  const bool measured = report != nullptr;
  ConcludeArguments arguments{.control = &control,
                              .settings = settings,
                              .measure = measured ? norm_.result() : nullptr,
                              .largest = measured ? norm_.largest() : nullptr,
                              .divisor = divisor.value,
                              .device_divisor = divisor.device,
                              .times = times_,
                              .takes_part = nullptr,
                              .flats = flats,
                              .report = report};
  if (takes_part != nullptr) {
    std::int64_t* source = host_takes_part(steps_ % report_ring);
    std::copy(takes_part->begin(), takes_part->end(), source);
    runtime_.device.copy(source, takes_part_, flats * static_cast<Bytes>(sizeof(std::int64_t)),
                         runtime_.reduce);
    arguments.takes_part = takes_part_;
  }
  runtime_.kernels.conclude(arguments, runtime_.reduce);
}

}  // namespace flatshard::detail
