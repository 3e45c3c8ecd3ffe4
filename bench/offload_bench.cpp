// A whole step of a Sharder at one rank under each offload, against the same bytes moved by the
// plainest code: copies between the tiers, a read for the norm, an update in place. On a host both
// tiers are host memory, so that the link is a copy. Verified first: every place leaves the bits of
// none; main fails if a result was wrong.
#include <flatshard/flatshard.hpp>

#include <benchmark/benchmark.h>

#include <cstdio>

#include "measure.hpp"
#include "rivals.hpp"

namespace flatshard_bench {
namespace {

constexpr int units = 24;
constexpr Elements unit_size = Elements{1} << 20;  // elements
constexpr Elements count = units * unit_size;      // 96 MiB of fp32

using Trainer = Sharder<strategy::FullShard, precision::Bf16Mixed, offload::None>;

bool all_right = true;

struct Place {
  const char* name;
  OffloadTraits traits;
  /// Bytes per element beside the norm (4) and the update (30: AdamW with a bf16 copy).
  Bytes reduced, down, up, rounded;
};
/// The gradient is reduced from bf16 to fp32 (6) and comes down (8); bf16 parameters move (4), once
/// after the step and once before they are used, where they rest on the other side.
constexpr Place places[] = {
    {"none", offload_traits<offload::None>(), 6, 0, 0, 0},
    {"cpu_optimizer", offload_traits<zero::Offload>(), 6, 8, 4, 0},
    {"cpu_params", offload_traits<offload::Place<offload::Cpu, offload::Device>>(), 6, 4, 4, 6},
    {"cpu_all", offload_traits<fsdp::CPUOffload>(), 6, 8, 4, 0}};

/// Modules of one parameter each, whose gradients are written once and then kept where they are.
struct OffloadBench {
  OffloadBench(const OffloadTraits& place, StreamForm form)
      : device({.form = form}),
        communicator(device.kernels()),
        modules(make_modules(model)),
        trainer(communicator, model, AdamW{.lr = 1e-3, .weight_decay = 0.1}, options(place)) {
    trainer.initialize(init::normal{0.02, 1});
  }

  static std::vector<Module> make_modules(Model& model) {
    std::vector<Module> modules;
    for (int unit = 0; unit < units; ++unit) {
      modules.push_back(model.module("h." + std::to_string(unit), {.backward_overwrites = true}));
      modules.back().add("weight", {unit_size});
    }
    return modules;
  }
  Options options(const OffloadTraits& place) {
    Options chosen;
    chosen.max_grad_norm = 1.0;
    chosen.device = &device;
    chosen.offload = place;
    return chosen;
  }
  template <class Write>
  void step(const Write& write) {
    for (auto module = modules.rbegin(); module != modules.rend(); ++module)
      trainer.backward(*module, [&](auto, auto gradients) {
        write(gradients[Parameter{static_cast<int>(modules.rend() - module) - 1}].data());
      });
    trainer.step();
    trainer.synchronize();
  }

  HostDevice device;
  Model model;
  Solo communicator;
  std::vector<Module> modules;
  Trainer trainer;
};

std::uint64_t hash_of_two_steps(const OffloadTraits& place) {
  OffloadBench bench(place, StreamForm::Threaded);
  for (const float sign : {1.F, -0.5F})
    bench.step([sign](Bf16* gradient) {
      for (Elements i = 0; i < unit_size; ++i)
        gradient[i] = from_float<Bf16>(sign * static_cast<float>(i % 13 - 6));
    });
  return params_hash(bench.trainer);
}

/// The bytes of one step, moved by the plainest code.
class Bound {
 public:
  explicit Bound(const Place& place) : place_(place) {
    for (float*& stream : streams_) stream = arena_.array<float>(count);
    copy_ = arena_.array<std::uint16_t>(count);
    for (Bytes bytes : {place.reduced, place.down, place.up, place.rounded})
      most_ = std::max(most_, bytes * count / 2);
    from_ = arena_.array<std::byte>(most_);
    to_ = static_cast<std::byte*>(arena_.allocate(most_));
    std::fill(from_, from_ + most_, std::byte{1});
    for (Elements i = 0; i < count; ++i)
      for (float* stream : streams_) stream[i] = static_cast<float>(i % 7);
  }
  void run() {
    const auto size = static_cast<std::size_t>(count);
    for (Bytes bytes : {place_.reduced, place_.down, place_.up, place_.rounded})
      stream_copy(from_, to_, static_cast<std::size_t>(bytes) * size / 2);
    benchmark::DoNotOptimize(
        read_all(reinterpret_cast<const std::uint64_t*>(streams_[0]), size / 2));
    update3_and_copy(streams_[0], streams_[1], streams_[2], streams_[3], copy_, size);
  }

 private:
  Place place_;
  Arena arena_;
  float* streams_[4];
  std::uint16_t* copy_;
  Bytes most_ = 0;
  std::byte* from_;
  std::byte* to_;
};

void offloaded_step(benchmark::State& state, const Place& place, StreamForm form) {
  static const std::uint64_t expected = hash_of_two_steps({});
  if (hash_of_two_steps(place.traits) != expected) {
    all_right = false;
    return state.SkipWithError("wrong result");
  }
  OffloadBench bench(place.traits, form);
  Bound bound(place);
  const Bytes bytes = count * (34 + place.reduced + place.down + place.up + place.rounded);
  measure(state, bytes, [&] { bench.step([](Bf16*) {}); },
          {{"copies, read and update in place", [&] { bound.run(); }}});
  state.counters["device_MiB"] = static_cast<double>(bench.trainer.plan().arena_bytes) / 1048576;
  state.counters["host_MiB"] = static_cast<double>(bench.trainer.plan().pinned_bytes) / 1048576;
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  using namespace flatshard_bench;
  for (const Place& place : places)
    for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
      benchmark::RegisterBenchmark(
          (std::string(place.name) + (form == StreamForm::Inline ? "/inline" : "/threaded"))
              .c_str(),
          offloaded_step, place, form)
          ->Iterations(rounds)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  if (!all_right) std::fputs("a result was wrong\n", stderr);
  return all_right ? 0 : 1;
}
