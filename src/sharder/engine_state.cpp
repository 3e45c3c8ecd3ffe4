// State for checkpoints: where it lies, the numbers beside it, going on from both.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include "engine_parts.hpp"

namespace flatshard {

FlatState Engine::flat_state(int index) const {
  const Flat& flat = parts_->runtime.flat(index);
  const detail::FlatMemory& memory = parts_->runtime.memory(index);
  if (flat.is_empty()) return {};
  parts_->runtime.bring_and_wait(index, parts_->state_writes);
  if (flat.requires_grad) return {memory.master, nullptr, memory.states};
  return {memory.compute, memory.resting_whole, {}};
}

void Engine::begin_state_read(const char* call) {
  Parts& parts = *parts_;
  parts.expect_no_open_call(call);
  FLATSHARD_EXPECTS(
      parts.micro_step < 0,
      fmt::format("{} comes between micro-steps: state is whole only after step()", call));
  parts.prepare();
  synchronize();
}

void Engine::begin_state_write(const char* call) {
  begin_state_read(call);
  parts_->prepare_writes(call);
  synchronize();
  parts_->stale = parts_->state_writes = true;
}

TrainingState Engine::training_state() const { return parts_->stepper.state(); }

void Engine::restore(const TrainingState& state) {
  FLATSHARD_EXPECTS(state.times.size() == plan().flats.size(),
                    fmt::format("restore(): time steps of {} flats for {}", state.times.size(),
                                plan().flats.size()));
  parts_->stepper.restore(state);
}

const std::vector<Optimizer>& Engine::group_optimizers() const {
  return parts_->stepper.group_optimizers();
}

void Engine::set_group_optimizers(const std::vector<Optimizer>& optimizers) {
  parts_->update_late_units();
  parts_->stepper.set_group_optimizers(optimizers);
}

std::string Engine::nvme() const {
  const detail::Runtime& runtime = parts_->runtime;
  if (runtime.optimizer_slots) return runtime.optimizer_slots->store().description();
  return runtime.parameter_slots ? runtime.parameter_slots->store().description() : "";
}

const Options& Engine::options() const { return parts_->options; }
Communicator& Engine::communicator() const { return parts_->runtime.world; }

}  // namespace flatshard

namespace flatshard::detail {

namespace {

template <class Value>
void copy(Runtime& runtime, const Value* source, Value* destination, std::size_t count) {
  runtime.device.copy(source, destination, static_cast<Bytes>(count * sizeof(Value)),
                      runtime.reduce);
}

}  // namespace

TrainingState Stepper::state() const {
  StepControl control;
  TrainingState state;
  state.times.resize(runtime_.plan.flats.size());
  copy(runtime_, in_backward_ ? &control_->reported : &control_->step, &control, 1);
  copy(runtime_, times_, state.times.data(), state.times.size());
  runtime_.reduce.synchronize();
  state.steps = control.steps;
  state.loss_scaler = control.scaler;
  state.seed = seed_;
  return state;
}

void Stepper::restore(const TrainingState& state) {
  for (StepControl* place : {&control_->step, &control_->reported}) {
    StepControl control;
    copy(runtime_, place, &control, 1);
    runtime_.reduce.synchronize();
    LossScaler scaler = control.scaler;
    if (scaler.settings.rule == state.loss_scaler.settings.rule)
      scaler.state = state.loss_scaler.state;
    control = make_step_control(scaler);
    control.steps = state.steps;
    copy(runtime_, &control, place, 1);
    runtime_.reduce.synchronize();
  }
  copy(runtime_, state.times.data(), times_, state.times.size());
  runtime_.reduce.synchronize();
  seed_ = state.seed;
  steps_ = restored_ = state.steps;
}

void Stepper::set_group_optimizers(const std::vector<Optimizer>& optimizers) {
  FLATSHARD_EXPECTS(optimizers.size() == groups_.size(),
                    fmt::format("{} optimizers for {} hyper-parameter groups", optimizers.size(),
                                groups_.size()));
  for (const Optimizer& optimizer : optimizers)
    FLATSHARD_EXPECTS(optimizer_.has_type_of(optimizer),
                      fmt::format("the optimizer is '{}' and cannot become '{}'", optimizer_.name(),
                                  optimizer.name()));
  group_optimizers_ = optimizers;
  upload_functors();
}

void Stepper::wait_for_earlier() {
  if (steps_ - 1 > restored_) wait(steps_ - 1);
}

}  // namespace flatshard::detail
