// A training with the optimizer on the host, and what bounds its steps.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cuda_offload_link.hpp"

namespace flatshard_bench {

inline double milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Of five; the first call before them does not count.
inline double median(const std::function<void()>& run) {
  run();
  std::array<double, 5> times{};
  for (double& time : times) time = milliseconds(run);
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2];
}

struct Chain {
  explicit Chain(const Size& size) {
    for (int unit = 0; unit < size.units; ++unit) {
      modules.push_back(model.module("h." + std::to_string(unit), {.backward_overwrites = true}));
      weights.push_back(modules.back().add("weight", {size.unit}));
    }
  }
  Model model;
  std::vector<Module> modules;
  std::vector<Parameter> weights;
};

/// What a step is made of and what it took, in milliseconds.
struct StepTimes {
  double compute, update, loop, step;
};

/// A training whose forward and backward are `turns` and twice as many kernels for each unit. They
/// are as long as those of matrix products (0.1 ms): while the link is in use a launch takes 3 us
/// longer, which short kernels would show.
template <class Precision>
class Training {
 public:
  using Trainer =
      Sharder<strategy::FullShard, Precision, offload::Place<offload::Device, offload::Cpu>>;

  Training(CudaDevice& device, const Size& size, bool clips)
      : chain(size),
        device_(device),
        size_(size),
        read_(device.memory(), std::max(kernel_elements, size.unit) * 2),
        written_(device.memory(), std::max(kernel_elements, size.unit) * 2),
        communicator_(device),
        trainer(communicator_, chain.model, optimizer(), options(device, size, clips)) {
    trainer.initialize(init::normal{0.02, 1});
    device.kernels().fill(init::normal{1, 2}, DType::BFloat16, read_.data(), 0, size.unit,
                          trainer.engine().compute_stream());
    trainer.synchronize();
  }

  static AdamW optimizer() { return {.lr = 1e-3, .weight_decay = 0.1}; }
  static Options options(CudaDevice& device, const Size& size, bool clips) {
    Options chosen;
    chosen.device = &device;
    chosen.max_grad_norm = clips ? 1 : 0;
    chosen.on_nonfinite = clips ? OnNonFinite::Skip : OnNonFinite::Apply;
    chosen.step_in_backward = !clips;
    chosen.update_part = size.update_part;
    return chosen;
  }

  void work(int kernels) {
    for (int kernel = 0; kernel < kernels; ++kernel) cast(written_.data(), kernel_elements);
  }
  PendingReport step(int turns) {
    for (const Module& module : chain.modules) trainer.forward(module, [&](auto) { work(turns); });
    for (int unit = size_.units - 1; unit >= 0; --unit) {
      const auto at = static_cast<std::size_t>(unit);
      trainer.backward(chain.modules[at], [&](auto, auto gradients) {
        work(2 * turns);
        cast(gradients[chain.weights[at]].data(), size_.unit);
      });
    }
    return trainer.step();
  }
  void steps(int turns, int count) {
    for (int i = 1; i < count; ++i) step(turns);
    step(turns).wait();
  }
  /// Per step, between the reports of two of them: what a step leaves to be done under the next
  /// one's forward counts once.
  double step_milliseconds(int turns, int before, int counted) {
    steps(turns, before);
    const double taken = milliseconds([&] { steps(turns, counted); });
    trainer.synchronize();
    return taken / counted;
  }
  double compute_milliseconds(int turns) {
    return milliseconds([&] {
      for (int unit = 0; unit < size_.units; ++unit) {
        work(3 * turns);
        cast(written_.data(), size_.unit);
      }
      trainer.engine().compute_stream().synchronize();
    });
  }

  /// The update of every unit, on the host alone, on the training's own memory.
  double update_milliseconds() {
    return milliseconds([&] {
      InlineStream now;
      for (int unit = 0; unit < size_.units; ++unit)
        update({unit, 0, size_.unit}, gradient_of(unit, 0), copy_.data(), now);
      now.check();
    });
  }
  /// The same as a loop over streams, without an engine, in the training's parts: each comes down
  /// (`down`), is stepped with, and its copy goes up. Both directions and the update use the host's
  /// memory.
  double loop_milliseconds(Link& link, bool down) {
    return milliseconds([&] {
      for (int unit = 0; unit < size_.units; ++unit)
        for (Elements from = 0; from < size_.unit; from += part_)
          pass({unit, from, std::min(part_, size_.unit - from)}, link, down);
      link.finish();
    });
  }

  /// All in turn, as the machine's speed changes: medians are to be taken over rounds.
  StepTimes round(int turns, Link& link, bool down) {
    constexpr int before = 3, counted = 8;
    return {compute_milliseconds(turns), update_milliseconds(), loop_milliseconds(link, down),
            step_milliseconds(turns, before, counted)};
  }

  Chain chain;

 private:
  static constexpr Elements kernel_elements = Elements{1} << 27;  // 0.12 ms
  static constexpr Bytes gradient_bytes = size_of(dtype_of<typename Precision::reduce>);

  /// Elements [from, from + count) of a unit.
  struct Part {
    int unit;
    Elements from, count;
  };
  /// Where a part's gradient arrives and its copy is made, until the one is used, the other sent.
  struct Slot {
    Slot(CudaDevice& device, Elements part)
        : gradient(device.host_memory(), part * gradient_bytes),
          copy(device.host_memory(), part * 2),
          used(device.make_event()),
          sent(device.make_event()) {}
    Buffer gradient, copy;
    std::unique_ptr<Event> used, sent;
  };

  void cast(void* target, Elements count) {
    device_.kernels().cast(read_.data(), DType::BFloat16, target, DType::BFloat16, count,
                           trainer.engine().compute_stream());
  }
  static std::byte* at(void* begin, Bytes bytes) { return static_cast<std::byte*>(begin) + bytes; }
  const void* gradient_of(int unit, Elements from) {
    return at(trainer.engine().local(unit).gradient, from * gradient_bytes);
  }

  void pass(const Part& part, Link& link, bool down) {
    Slot& slot = slots_[next_slot_++ % slots_.size()];
    const void* gradient = down ? slot.gradient.data() : gradient_of(part.unit, part.from);
    const Elements first = part.unit * size_.unit + part.from;
    if (down) {
      link.down->wait(*slot.used);
      link.bring(first * gradient_bytes, part.count * gradient_bytes, slot.gradient.data());
    }
    link.lane->wait(*slot.sent);
    update(part, gradient, slot.copy.data(), *link.lane);
    link.lane->record(*slot.used);
    link.send(slot.copy.data(), first * 2, part.count * 2);
    link.up->record(*slot.sent);
  }

  void update(const Part& part, const void* gradient, void* copy, Stream& stream) {
    const Optimizer adam(optimizer());
    const LocalShard local = trainer.engine().local(part.unit);
    StepArguments range{};
    range.master = at(local.master, part.from * 4);
    range.gradient = gradient;
    for (std::size_t state = 0; state < local.states.size(); ++state)
      range.states[state] = at(local.states[state], part.from * 4);
    range.copy = copy;
    range.count = part.count;
    range.scalars = &scalars_;
    range.time = &time_;
    range.row = trainer.plan().flats[static_cast<std::size_t>(part.unit)].step_row;
    range.functor = adam.functor();
    device_.host_kernels().step_ranges(StepFunctions(adam.host_step(range.row)), {&range, 1},
                                       stream);
  }

  CudaDevice& device_;
  Size size_;
  Buffer read_, written_;
  Elements part_ = size_.update_part > 0 ? std::min(size_.update_part, size_.unit) : size_.unit;
  Buffer copy_{device_.host_memory(), size_.unit * 2};
  std::array<Slot, 4> slots_{Slot(device_, part_), Slot(device_, part_), Slot(device_, part_),
                             Slot(device_, part_)};
  std::size_t next_slot_ = 0;
  const StepScalars scalars_{1, 1};
  const std::int64_t time_ = 10;
  Solo communicator_;

 public:
  Trainer trainer;
};

}  // namespace flatshard_bench
