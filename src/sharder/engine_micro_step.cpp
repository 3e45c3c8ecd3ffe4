// Where a step stands: micro-steps, uses of units, lives.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include "engine_parts.hpp"

namespace flatshard {

void Engine::Parts::expect_no_open_call(const char* call) const {
  FLATSHARD_EXPECTS(open_calls == 0,
                    fmt::format("{} was called inside a forward or backward function", call));
}

void Engine::Parts::prepare_writes(const char* call) {
  expect_no_open_call(call);
  gatherer.expect_released();
  update_late_units();
  order_parameter_writes();
  if (runtime.offloads()) runtime.join();
}

void Engine::Parts::prepare() {
  runtime.check();
  FLATSHARD_EXPECTS(broken.empty(), broken + ": call discard_step() on every rank before going on");
  runtime.put_back_and_wait();
  state_writes = false;
  if (stale) refresh();
}

void Engine::Parts::open_micro_step(bool is_last) {
  FLATSHARD_EXPECTS(!last, "the last micro-step of this step has begun: call step() first");
  if (micro_step >= 0) close_micro_step();
  FLATSHARD_EXPECTS(micro_step + 1 < options.max_micro_steps,
                    fmt::format("micro-step {} exceeds max_micro_steps {}", micro_step + 2,
                                options.max_micro_steps));
  ++micro_step;
  last = is_last;
  order.restart();
  for (UnitUse& unit : uses) unit = {};
  if (last && options.step_in_backward) {
    runtime.wait_for_nvme();
    order_parameter_writes();
    stepper.begin_step(default_divisor());
    // Which may read the loss scale, and need not wait for the host's last updates.
    runtime.order(runtime.reduce, *decided, runtime.compute);
    stepper.send_decision();
  }
  if (last && detail::steps_on_host(runtime.plan))
    norm.begin(detail::leaves_device_complete(runtime.plan, micro_step + 1) ? Tier::Device
                                                                            : Tier::Host);
}

void Engine::Parts::close_micro_step() {
  for (int unit = 0; unit < static_cast<int>(uses.size()); ++unit) {
    end_life(Phase::Forward, unit);
    end_life(Phase::Backward, unit);
    if (!runtime.unit(unit).trainable || use(unit).closed) continue;
    if (!use(unit).opened) reducer.open(unit, true);
    close_unit(unit);
  }
  for (int flat = 0; flat < static_cast<int>(takes_part.size()); ++flat)
    if (!runtime.flat(flat).skip_when_unused) takes_part[static_cast<std::size_t>(flat)] = true;
}

void Engine::Parts::keep_alive(Phase phase, int unit) {
  bool& alive = use(unit).alive[static_cast<int>(phase)];
  if (alive) return;
  update_if_left(unit);
  gatherer.hold(unit);
  alive = true;
}

void Engine::Parts::end_life(Phase phase, int unit) {
  bool& alive = use(unit).alive[static_cast<int>(phase)];
  if (!alive) return;
  gatherer.release(unit);
  alive = false;
}

void Engine::Parts::count_use(Phase phase, int unit) {
  UnitUse& used = use(unit);
  int& count = phase == Phase::Forward ? used.forward : used.backward;
  if (++count < runtime.unit(unit).uses) return;
  count = 0;
  end_life(phase, unit);
  if (phase == Phase::Backward && used.opened && !used.closed) close_unit(unit);
}

/// Gathers for the calls to come until `limit` gathered units wait for their use.
void Engine::Parts::prefetch_next(int limit) {
  const bool into_backward = options.prefetch_backward == BackwardPrefetch::Pre;
  for (std::size_t next = 0; next < order.upcoming() && gatherer.outstanding() < limit; ++next) {
    const detail::Call& call = order.upcoming(next);
    if (call.phase == Phase::Backward && !into_backward && order.phase() == Phase::Forward) return;
    for (int unit : touched(call.module)) {
      update_if_left(unit);
      gatherer.prefetch(unit);
    }
  }
}

void Engine::Parts::open_gradients(int module, int unit) {
  if (!runtime.unit(unit).trainable) return;
  UnitUse& used = use(unit);
  FLATSHARD_EXPECTS(
      !used.closed,
      fmt::format("backward of module '{}' comes after the gradients of unit '{}' were reduced: "
                  "declare how often a micro-step uses it (ModuleOptions::uses)",
                  model.modules()[static_cast<std::size_t>(module)].name, runtime.unit(unit).name));
  mark_used(module);
  if (used.opened) return;
  reducer.open(unit, false);
  used.opened = true;
}

void Engine::Parts::mark_used(int module) {
  const ModuleSpec& spec = model.modules()[static_cast<std::size_t>(module)];
  const auto mark = [this](int parameter) {
    const int flat = runtime.plan.flat_of_parameter[static_cast<std::size_t>(parameter)];
    takes_part[static_cast<std::size_t>(flat)] = true;
  };
  for (int parameter : spec.parameters) mark(parameter);
  for (int parameter : spec.tied) mark(parameter);
}

void Engine::Parts::close_unit(int unit) {
  breaking_step("the reduction of a unit", [&] { finish_unit(unit); });
}

void Engine::Parts::finish_unit(int unit) {
  const bool updates = last && options.step_in_backward;
  if (updates && runtime.parameter_slots) runtime.disk.synchronize();  // what backward has read
  const bool at_once = updates && stepper.decide_next();
  reducer.open_slots(unit, micro_step, last);
  reducer.close(unit, micro_step, last, at_once);
  if (!updates) reducer.close_slots(unit, last);
  use(unit).closed = true;
  if (updates) stepper.update_unit(unit, at_once);
}

detail::Divisor Engine::Parts::default_divisor() const {
  return {static_cast<double>(runtime.plan.world) * (micro_step + 1), nullptr};
}

void Engine::Parts::update_late_units() {
  if (!stepper.leaves_units()) return;
  breaking_step("the update of a unit", [this] {
    order_parameter_writes();
    stepper.update_late_units();
  });
}

void Engine::Parts::order_parameter_writes() {
  runtime.order(runtime.compute, *computed, runtime.reduce);
  if (runtime.offloads()) runtime.upload.wait(*computed);
  gatherer.order_before_writes();
}

}  // namespace flatshard
