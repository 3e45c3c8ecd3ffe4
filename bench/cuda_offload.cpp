// Offload from a CUDA device against what bounds it, measured in the same run: copies against a
// plain two-way pinned copy of the same bytes; steps with the optimizer on the host against
// compute, link and the host's update. Prints tables.
//
//   cuda_offload_bench [MILLIONS OF PARAMETERS]     512
#include <flatshard/flatshard.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace flatshard_bench {
namespace {

using namespace flatshard;  // NOLINT: a program

constexpr int units = 32;
using Trainer = Sharder<strategy::FullShard, precision::Bf16Mixed,
                        offload::Place<offload::Device, offload::Cpu>>;

double milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Of five; the first call before them does not count.
double median(const std::function<void()>& run) {
  run();
  std::array<double, 5> times{};
  for (double& time : times) time = milliseconds(run);
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2];
}

/// Bytes of gradients (fp32) that come down and of parameters (bf16) that go up, in equal parts.
struct Link {
  Link(CudaDevice& on_device, Elements unit_size)
      : device(on_device),
        down_bytes(unit_size * 4),
        up_bytes(unit_size * 2),
        on_device_(device.memory(), units * (down_bytes + up_bytes)),
        on_host_(device.host_memory(), units * (down_bytes + up_bytes)) {}

  /// One copy each way at once: the bound. `ways`: 1 down, 2 up, 3 both.
  void plain(int ways) {
    if ((ways & 1) != 0) device.copy(there(0), here(0), units * down_bytes, *down);
    if ((ways & 2) != 0)
      device.copy(here(units * down_bytes), there(units * down_bytes), units * up_bytes, *up);
    down->synchronize();
    up->synchronize();
  }
  /// As the engine does: each part comes down, the lane looks at it, its copy goes up.
  void by_units() {
    for (int unit = 0; unit < units; ++unit) {
      device.copy(there(unit * down_bytes), here(unit * down_bytes), down_bytes, *down);
      down->record(*arrived);
      lane->wait(*arrived);
      lane->record(*made);
      up->wait(*made);
      const Bytes place = units * down_bytes + unit * up_bytes;
      device.copy(here(place), there(place), up_bytes, *up);
    }
    down->synchronize();
    up->synchronize();
  }

  CudaDevice& device;
  Bytes down_bytes, up_bytes;
  std::unique_ptr<Stream> down = device.make_stream(), up = device.make_stream();
  std::unique_ptr<Stream> lane = device.make_host_side_stream();
  std::unique_ptr<Event> arrived = device.make_event(), made = device.make_event();

 private:
  std::byte* there(Bytes at) const { return static_cast<std::byte*>(on_device_.data()) + at; }
  std::byte* here(Bytes at) const { return static_cast<std::byte*>(on_host_.data()) + at; }
  Buffer on_device_, on_host_;
};

struct Chain {
  explicit Chain(Elements unit_size) {
    for (int unit = 0; unit < units; ++unit) {
      modules.push_back(model.module("h." + std::to_string(unit), {.backward_overwrites = true}));
      weights.push_back(modules.back().add("weight", {unit_size}));
    }
  }
  Model model;
  std::vector<Module> modules;
  std::vector<Parameter> weights;
};

/// A training whose forward and backward are `turns` and twice as many passes over each unit.
class Training {
 public:
  Training(CudaDevice& device, Elements unit_size, bool clips)
      : chain(unit_size),
        device_(device),
        unit_size_(unit_size),
        scratch_(device.memory(), unit_size * 2),
        communicator_(device),
        trainer(communicator_, chain.model, optimizer(), options(device, clips)) {
    trainer.initialize(init::normal{0.02, 1});
    device.kernels().fill(init::normal{1, 2}, DType::BFloat16, scratch_.data(), 0, unit_size,
                          trainer.engine().compute_stream());
    trainer.synchronize();
  }

  static AdamW optimizer() { return {.lr = 1e-3, .weight_decay = 0.1}; }
  static Options options(CudaDevice& device, bool clips) {
    Options chosen;
    chosen.device = &device;
    chosen.max_grad_norm = clips ? 1 : 0;
    chosen.on_nonfinite = clips ? OnNonFinite::Skip : OnNonFinite::Apply;
    chosen.step_in_backward = !clips;
    return chosen;
  }

  /// `passes` over a unit, as forward or backward would take.
  void work(void* target, int passes) {
    for (int pass = 0; pass < passes; ++pass)
      device_.kernels().cast(scratch_.data(), DType::BFloat16, target, DType::BFloat16, unit_size_,
                             trainer.engine().compute_stream());
  }
  void step(int turns) {
    for (const Module& module : chain.modules)
      trainer.forward(module, [&](auto) { work(spare_.data(), turns); });
    for (int unit = units - 1; unit >= 0; --unit) {
      const auto at = static_cast<std::size_t>(unit);
      trainer.backward(chain.modules[at], [&](auto, auto gradients) {
        work(gradients[chain.weights[at]].data(), 2 * turns + 1);
      });
    }
    trainer.step();
  }
  /// Per step, of many that run on.
  double step_milliseconds(int turns) {
    constexpr int before = 16, counted = 16;
    for (int i = 0; i < before; ++i) step(turns);
    trainer.synchronize();
    return milliseconds([&] {
             for (int i = 0; i < counted; ++i) step(turns);
             trainer.synchronize();
           }) /
           counted;
  }
  double compute_milliseconds(int turns) {
    Stream& stream = trainer.engine().compute_stream();
    return median([&] {
      for (int unit = 0; unit < units; ++unit) work(spare_.data(), 3 * turns + 1);
      stream.synchronize();
    });
  }

  /// The update of every unit, on the host alone, on the training's own memory.
  double update_milliseconds() {
    const StepScalars scalars{1, 1};
    const std::int64_t time = 10;
    const Optimizer adam(optimizer());
    const Buffer copy(device_.host_memory(), unit_size_ * 2);
    return median([&] {
      for (int unit = 0; unit < units; ++unit) {
        const LocalShard local = trainer.engine().local(unit);
        const Flat& flat = trainer.plan().flats[static_cast<std::size_t>(unit)];
        StepArguments range{};
        range.master = local.master;
        range.gradient = local.gradient;
        for (std::size_t state = 0; state < local.states.size(); ++state)
          range.states[state] = local.states[state];
        range.copy = copy.data();
        range.count = local.count;
        range.scalars = &scalars;
        range.time = &time;
        range.row = flat.step_row;
        range.functor = adam.functor();
        InlineStream now;
        device_.host_kernels().step_ranges(StepFunctions(adam.host_step(flat.step_row)),
                                           {&range, 1}, now);
        now.check();
      }
    });
  }
  /// The norm of every gradient, on the host alone.
  double norm_milliseconds() {
    return median([&] {
      for (int unit = 0; unit < units; ++unit) {
        const LocalShard local = trainer.engine().local(unit);
        int level = 0;
        while ((Elements{1} << level) < local.count) ++level;
        const NormNode node{0, local.count, level};
        double sum = 0;
        InlineStream now;
        device_.host_kernels().square_sums(local.gradient, DType::Float32, {&node, 1}, &sum, now);
        now.check();
      }
    });
  }

  Chain chain;

 private:
  CudaDevice& device_;
  Elements unit_size_;
  Buffer scratch_;
  Buffer spare_{device_.memory(), unit_size_ * 2};
  Solo communicator_;

 public:
  Trainer trainer;
};

struct LinkTimes {
  double both, down, up;
};

LinkTimes measure_link(CudaDevice& device, Elements unit_size) {
  Link link(device, unit_size);
  const LinkTimes plain{median([&] { link.plain(3); }), median([&] { link.plain(1); }),
                        median([&] { link.plain(2); })};
  const double ours = median([&] { link.by_units(); });
  const auto gigabytes = static_cast<double>(units * (link.down_bytes + link.up_bytes)) * 1e-9;
  std::printf(
      "copies, %.2f GB: plain two-way %.2f ms (%.1f GB/s; down alone %.2f, up alone %.2f); "
      "by units through the lane %.2f ms: %.3f of it\n",
      gigabytes, plain.both, gigabytes / plain.both * 1e3, plain.down, plain.up, ours,
      plain.both / ours);
  return plain;
}

void measure_steps(CudaDevice& device, Elements unit_size, bool clips, const LinkTimes& link) {
  Training training(device, unit_size, clips);
  const double update = training.update_milliseconds(), norm = training.norm_milliseconds();
  const double pass = training.compute_milliseconds(100) / 301;
  for (const double share : {0.5, 1.0, 2.0}) {
    const int turns = std::max(1, static_cast<int>(share * update / pass / 3));
    const double compute = training.compute_milliseconds(turns);
    const double step = training.step_milliseconds(turns);
    const double bound = clips ? std::max(compute, link.down) + std::max(update, link.up)
                               : std::max({compute, link.both, update});
    const double with_norm = clips ? std::max(compute, link.down) + std::max(update + norm, link.up)
                                   : std::max({compute, link.both, update + norm});
    std::printf("%-9s %10.2f %9.2f %9.2f %9.2f %9.2f %9.2f   %6.3f %6.3f\n",
                clips ? "clipped" : "unclipped", compute, clips ? link.down : link.both,
                clips ? link.up : 0, update, norm, step, step / bound, step / with_norm);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  using namespace flatshard_bench;
  if (cuda_device_count() == 0) {
    std::puts("skipped: this process can use no CUDA device");
    return 77;
  }
  const long long millions = argc > 1 ? std::atoll(argv[1]) : 512;
  const Elements unit_size = round_up(millions * 1000000 / units, 1024);
  CudaDevice device;
  std::printf("%s; %d units of %lld parameters; AdamW, fp32 masters, bf16 gradients; %d threads\n",
              std::string(device.name()).c_str(), units, static_cast<long long>(unit_size),
              device.options().host_threads);
  const LinkTimes link = measure_link(device, unit_size);
  std::printf("%-9s %10s %9s %9s %9s %9s %9s   %s\n", "ms", "compute", "link", "up", "update",
              "norm", "step", "step/bound, with norm");
  for (const bool clips : {false, true}) measure_steps(device, unit_size, clips, link);
  return 0;
}
