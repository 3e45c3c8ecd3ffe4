#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/sharder/engine.hpp>

#include <algorithm>

#include "agreement.hpp"
#include "engine_parts.hpp"

namespace flatshard {

namespace {

Device& chosen_device(const Communicator& communicator, const Options& options,
                      std::unique_ptr<Device>& own) {
  if (options.device != nullptr) return *options.device;
  if (communicator.device() != nullptr) return *communicator.device();
  own = std::make_unique<HostDevice>();
  return *own;
}

Plan checked_plan(const Model& model, const PlanRequest& request, const Optimizer& optimizer,
                  const Options& options, DeviceKind device) {
  Plan plan = make_plan(model, request, options);
  detail::check_step(plan, optimizer, options, device);
  return plan;
}

}  // namespace

Engine::Parts::Parts(Communicator& communicator, const Model& described, const Optimizer& optimizer,
                     const PlanRequest& request, const Options& chosen)
    : model(described),
      options(chosen),
      device(chosen_device(communicator, options, own_device)),
      runtime(communicator, checked_plan(model, request, optimizer, options, device.kind()), device,
              options),
      agreed((detail::expect_agreement(runtime, model, optimizer, options), Agreed{})),
      norm(runtime, options.norm, options.norm_hook),
      gatherer(runtime, options.max_live_elements),
      relay(runtime),
      reducer(runtime, norm, relay),
      stepper(runtime, gatherer, norm, relay, optimizer, options),
      order(static_cast<int>(model.modules().size())),
      uses(runtime.plan.units.size()),
      takes_part(runtime.plan.flats.size(), false),
      computed(runtime.make_event()),
      decided(runtime.make_event()),
      gathered(runtime.make_event()) {
  // Every rank has its memory before the first collective runs: having it may wait for the devices
  // of other ranks in this process.
  if (device.kind() == DeviceKind::Cuda) communicator.synchronize();
}

Engine::Engine(Communicator& communicator, const Model& model, const Optimizer& optimizer,
               const PlanRequest& request, const Options& options)
    : parts_(std::make_unique<Parts>(communicator, model, optimizer, request, options)) {}

Engine::~Engine() = default;

const Plan& Engine::plan() const { return parts_->runtime.plan; }
const Model& Engine::model() const { return parts_->model; }
Device& Engine::device() const { return parts_->runtime.device; }
bool Engine::has_pinned_memory() const { return parts_->runtime.has_pinned(); }
Stream& Engine::compute_stream() const { return parts_->runtime.compute; }
const float* Engine::loss_scale() const { return parts_->stepper.loss_scale(); }
StepReport Engine::wait(std::int64_t step) { return parts_->stepper.wait(step); }
Elements Engine::peak_gathered_elements() const { return parts_->gatherer.peak_live_elements(); }

void Engine::set_optimizer(const Optimizer& optimizer) {
  parts_->update_late_units();
  parts_->stepper.set_optimizer(optimizer);
}

void Engine::begin_micro_step(const MicroStepOptions& options) {
  parts_->expect_no_open_call("micro_step()");
  parts_->prepare();
  parts_->open_micro_step(options.last);
}

Elements Engine::micro_batch(int index, int count) const {
  const Plan& plan = parts_->runtime.plan;
  FLATSHARD_EXPECTS(count >= 1 && index >= 0 && index < count,
                    fmt::format("micro-step {} of {} does not exist", index, count));
  const Elements rank = parts_->runtime.world.rank();
  const Elements group = plan.shard_group;
  switch (plan.moment) {
    case ReduceMoment::Micro:
      return Elements{index} * plan.world + rank;
    case ReduceMoment::Boundary:
      return rank * count + index;
    case ReduceMoment::ReplicaBoundary:
      break;
  }
  return rank / group * group * count + index * group + rank % group;
}

void Engine::enter(Phase phase, int module) {
  Parts& parts = *parts_;
  const std::vector<int>& units = parts.touched(module);
  parts.prepare();
  if (parts.micro_step < 0) parts.open_micro_step(true);
  parts.order.record({phase, module});
  try {
    for (int unit : units) parts.keep_alive(phase, unit);
    if (phase == Phase::Backward)
      for (int unit : units) parts.open_gradients(module, unit);
  } catch (...) {
    for (int unit : units) parts.end_life(phase, unit);
    throw;
  }
  if (phase == Phase::Forward) parts.prefetch_next(parts.options.prefetch_forward);
  if (phase == Phase::Backward && parts.options.prefetch_backward == BackwardPrefetch::Pre)
    parts.prefetch_next(1);
  ++parts.open_calls;
}

void Engine::leave(Phase phase, int module, bool completed) {
  Parts& parts = *parts_;
  --parts.open_calls;
  if (!completed && phase == Phase::Backward)
    parts.broken = fmt::format("backward of module '{}' did not complete",
                               parts.model.modules()[static_cast<std::size_t>(module)].name);
  for (int unit : parts.touched(module)) {
    if (completed)
      parts.count_use(phase, unit);
    else
      parts.end_life(phase, unit);
  }
  if (completed && phase == Phase::Backward &&
      parts.options.prefetch_backward == BackwardPrefetch::Post)
    parts.prefetch_next(1);
}

void Engine::hold(int module) {
  parts_->prepare();
  const std::vector<int>& units = parts_->touched(module);
  std::size_t held = 0;
  try {
    for (; held < units.size(); ++held) {
      parts_->update_if_left(units[held]);
      parts_->gatherer.hold(units[held]);
    }
  } catch (...) {
    for (; held > 0; --held) parts_->gatherer.release(units[held - 1]);
    throw;
  }
}

void Engine::release(int module) noexcept {
  for (int unit : parts_->touched(module)) parts_->gatherer.release(unit);
}

void Engine::prefetch(int module) {
  parts_->prepare();
  for (int unit : parts_->touched(module)) {
    parts_->update_if_left(unit);
    parts_->gatherer.prefetch(unit);
  }
}

void Engine::open_gradients(int module) {
  parts_->prepare();
  if (parts_->micro_step < 0) parts_->open_micro_step(true);
  for (int unit : parts_->touched(module)) parts_->open_gradients(module, unit);
}

void Engine::reduce(int module) {
  parts_->prepare();
  for (int unit : parts_->touched(module)) parts_->count_use(Phase::Backward, unit);
}

void Engine::discard_step() {
  Parts& parts = *parts_;
  parts.expect_no_open_call("discard_step()");
  for (int unit = 0; unit < static_cast<int>(parts.uses.size()); ++unit) {
    parts.end_life(Phase::Forward, unit);
    parts.end_life(Phase::Backward, unit);
    parts.reducer.discard(unit);
    parts.use(unit) = {};
  }
  if (!parts.relay.is_empty()) parts.relay.finish();
  const bool updates = parts.last && parts.options.step_in_backward;
  std::fill(parts.takes_part.begin(), parts.takes_part.end(), false);
  parts.micro_step = -1;
  parts.last = false;
  parts.broken.clear();  // also if what follows fails: then with its error
  if (updates) {         // some parameters have changed
    parts.gatherer.expect_released();
    parts.order_parameter_writes();
    parts.stepper.finish_updates();
    parts.gatherer.invalidate();
  }
  parts.reducer.stepped();
}

std::int64_t Engine::step(const StepOptions& options) {
  Parts& parts = *parts_;
  parts.expect_no_open_call("step()");
  parts.prepare();
  if (parts.micro_step < 0) parts.open_micro_step(true);
  FLATSHARD_EXPECTS(parts.last,
                    fmt::format("step() after micro-step {}, which was not announced as "
                                "the last: micro_step({{.last = true}})",
                                parts.micro_step));
  const bool own_divisor =
      options.gradient_divisor != 0 || options.device_gradient_divisor != nullptr;
  FLATSHARD_EXPECTS(
      !own_divisor || !parts.options.step_in_backward,
      "step_in_backward divides by world size * micro-steps: a gradient_divisor given "
      "to step() comes too late");
  parts.close_micro_step();
  parts.gatherer.expect_released();
  parts.stepper.wait_for_earlier();
  detail::Divisor divisor = parts.default_divisor();
  if (options.gradient_divisor != 0) divisor.value = options.gradient_divisor;
  divisor.device = options.device_gradient_divisor;
  std::int64_t number = 0;
  parts.breaking_step("step()", [&] { number = parts.update(divisor); });
  return number;
}

std::int64_t Engine::Parts::update(const detail::Divisor& divisor) {
  runtime.wait_for_nvme();  // or another rank would take part in a step of bad data
  order_parameter_writes();
  const std::int64_t number =
      options.step_in_backward ? stepper.end_step(divisor) : stepper.step(divisor, takes_part);
  gatherer.invalidate();
  reducer.stepped();
  std::fill(takes_part.begin(), takes_part.end(), false);
  micro_step = -1;
  last = false;
  return number;
}

void Engine::synchronize() {
  parts_->update_late_units();
  parts_->runtime.synchronize();
}

void Engine::read(const void* source, void* destination, Bytes bytes) {
  synchronize();
  parts_->runtime.device.copy(source, destination, bytes, parts_->runtime.reduce);
  parts_->runtime.reduce.synchronize();
}

}  // namespace flatshard
