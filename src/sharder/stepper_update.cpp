// The update of a step: on the lane of the tier where the optimizer rests.
#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>

#include <algorithm>
#include <utility>

#include "stepper.hpp"

namespace flatshard::detail {

namespace {

/// A task that says how far its stream came, or, when it is not run, why not.
class ReachedMark {
 public:
  ReachedMark(Reductions& reductions, std::int64_t number)
      : reductions_(&reductions), number_(number) {}
  ReachedMark(ReachedMark&& other) noexcept
      : reductions_(std::exchange(other.reductions_, nullptr)), number_(other.number_) {}
  ReachedMark& operator=(ReachedMark&&) = delete;
  ~ReachedMark() {
    if (reductions_ != nullptr) reductions_->fail(HostStream::skip_reason());
  }
  void operator()() { std::exchange(reductions_, nullptr)->reach(number_); }

 private:
  Reductions* reductions_;
  std::int64_t number_;
};

}  // namespace

void Reductions::reach(std::int64_t number) {
  const std::lock_guard hold(mutex_);
  reached_ = number;
}

void Reductions::fail(const std::exception_ptr& reason) {
  const std::lock_guard hold(mutex_);
  if (!failure_) failure_ = reason;
}

void Reductions::expect(std::int64_t number) const {
  const std::lock_guard hold(mutex_);
  if (reached_ >= number) return;
  if (failure_) std::rethrow_exception(failure_);
  throw Error("what a step needs of other ranks did not arrive");
}

void Stepper::send_decision() {
  if (!steps_on_host(runtime_.plan)) return;
  runtime_.order(runtime_.host, *updated_, runtime_.reduce);
  if (runtime_.parameter_slots) runtime_.order(runtime_.disk, *written_, runtime_.reduce);
  runtime_.device.copy(&control_->step.scalars, scalars_, sizeof(StepScalars), runtime_.reduce);
  runtime_.device.copy(times_, step_times_,
                       static_cast<Bytes>(runtime_.plan.flats.size() * sizeof(std::int64_t)),
                       runtime_.reduce);
  runtime_.order(runtime_.reduce, *decided_, runtime_.host);
  follow_reductions();
}

void Stepper::follow_reductions() {
  if (!steps_on_host(runtime_.plan) || runtime_.device.kind() != DeviceKind::Host) return;
  const std::int64_t number = reductions_.next();
  host_stream(runtime_.reduce).enqueue(ReachedMark(reductions_, number));
  runtime_.order(runtime_.reduce, *reduced_, runtime_.host);
  host_stream(runtime_.host).enqueue([this, number] { reductions_.expect(number); });
}

/// Of the unit; those that take part (none: all).
void Stepper::update_flats(int unit, const std::vector<bool>* takes_part) {
  gatherer_.delivery().begin(unit, steps_on_host(runtime_.plan) ? scalars_ : nullptr);
  for (int flat : runtime_.unit(unit).flats) {
    const bool takes = takes_part == nullptr || (*takes_part)[static_cast<std::size_t>(flat)];
    if (takes && runtime_.flat(flat).requires_grad) update_flat(flat);
  }
}

/// Of a unit whose gradients are in memory, in backward.
void Stepper::read_masters(int unit) {
  NvmeRing* const slots = runtime_.optimizer_slots.get();
  if (slots == nullptr) return;
  for (int flat : runtime_.unit(unit).flats) slots->read(NvmePart::Optimizer, flat);
  for (int flat : runtime_.unit(unit).flats) slots->await(NvmePart::Optimizer, flat);
}

/// A step that is skipped writes no copies, but what is staged is delivered all the same: then it
/// must be what the masters, which have not changed, are rounded to. The host knows the decision
/// when it comes there; a device is spared the branch. Of one part, at `staged`. No step in
/// backward is skipped.
void Stepper::round_masters(int index, Elements from, Elements count, std::byte* staged) {
  const Flat& flat = runtime_.flat(index);
  if (in_backward_ || !stages(flat, runtime_.plan)) return;
  const std::byte* master = runtime_.memory(index).master + from * size_of(flat.master);
  const auto round = [&kernels = lane_.kernels, &flat, master, staged, count](StreamRef stream) {
    kernels.cast(master, flat.master, staged, flat.compute, count, stream);
  };
  if (!steps_on_host(runtime_.plan)) return round(lane_.stream);
  host_stream(lane_.stream).enqueue([round, scalars = scalars_] {
    InlineStream now;
    if (scalars->apply == 0) round(now);
  });
}

void Stepper::update_flat(int index) {
  const Flat& flat = runtime_.flat(index);
  const Elements slice = flat.partition.slice();
  const bool in_parts = relay_.holds(index) || flat.staged_in_parts;
  const Elements part = in_parts ? runtime_.plan.update_part : slice;
  for (Elements from = 0; from < slice; from += part)
    update_part(index, from, std::min(part, slice - from));
  if (relay_.holds(index)) relay_.finish();
  gatherer_.delivery().mark(index);
  if (NvmeRing* slots = runtime_.optimizer_slots.get())
    slots->write(NvmePart::Optimizer, index, scalars_);
}

/// Elements [from, from + count) of the slice.
void Stepper::update_part(int index, Elements from, Elements count) {
  const Flat& flat = runtime_.flat(index);
  const bool relayed = relay_.holds(index);
  const std::byte* gradient =
      relayed ? relay_.bring(from, count)
              : runtime_.memory(index).gradient_slice + from * size_of(flat.accumulate);
  if (relayed && from == 0 && pace_) pace_->note_arrival(host_stream(lane_.stream));
  std::byte* copy = gatherer_.delivery().open_part(index, from);
  issue_part(index, {from, count, gradient, copy});
  round_masters(index, from, count, copy);
  if (relayed) relay_.release();
  gatherer_.delivery().send_part(index, from, count);
}

void Stepper::issue_part(int index, const Part& part) {
  const Flat& flat = runtime_.flat(index);
  ranges_.clear();
  for (const StepRun& run : flat.runs[static_cast<std::size_t>(runtime_.shard.rank())]) {
    const Elements begin = std::max(run.offset, part.from);
    const Elements end = std::min(run.offset + run.count, part.from + part.count);
    if (begin >= end) continue;
    const StepRun within{begin, end - begin, run.canonical + (begin - run.offset), run.group};
    StepArguments arguments = arguments_of(index, within);
    arguments.gradient = part.gradient + (begin - part.from) * size_of(flat.accumulate);
    if (flat.step_row.writes_copy)
      arguments.copy = part.copy + (begin - part.from) * size_of(flat.compute);
    ranges_.push_back(arguments);
  }
  if (!ranges_.empty())
    lane_.kernels.step_ranges(functions_[static_cast<std::size_t>(index)], ranges_, lane_.stream);
}

/// All but where gradient and copy are.
StepArguments Stepper::arguments_of(int index, const StepRun& run) const {
  const Flat& flat = runtime_.flat(index);
  const FlatMemory& memory = runtime_.memory(index);
  StepArguments arguments{};
  arguments.master = memory.master + run.offset * size_of(flat.master);
  for (std::size_t state = 0; state < memory.states.size(); ++state)
    arguments.states[state] = memory.states[state] + run.offset * size_of(flat.state);
  arguments.count = run.count;
  arguments.canonical = run.canonical;
  arguments.scalars = scalars_;
  arguments.time = step_times_ + index;
  arguments.seed = seed_;
  arguments.row = flat.step_row;
  arguments.functor = group_optimizers_[static_cast<std::size_t>(run.group)].functor();
  if (device_functors_ != nullptr)
    arguments.device_functor = device_functors_ + run.group * Bytes{max_functor_bytes};
  return arguments;
}

}  // namespace flatshard::detail
