// A whole step of a Sharder at one rank (gradients in place, norm, clipping, AdamW) against the
// same bytes read once and updated in place. Verified first; main fails if a result was wrong.
#include <flatshard/flatshard.hpp>

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>

#include "measure.hpp"
#include "rivals.hpp"

namespace flatshard_bench {
namespace {

constexpr Elements count = Elements{32} << 20;  // elements: 128 MiB of fp32
constexpr Bytes step_bytes = 32 * count;        // norm reads 4; AdamW reads 16 and writes 12

bool all_right = true;

/// One module of one parameter whose gradient is written once and then kept.
template <class Precision>
struct StepBench {
  using Trainer = Sharder<strategy::FullShard, Precision, offload::None>;

  StepBench()
      : weight(add()),
        communicator(device.kernels()),
        trainer(communicator, model, AdamW{.lr = 1e-3, .weight_decay = 0.1}, options()) {
    trainer.initialize(init::normal{0.02, 1});
  }

  Parameter add() { return model.root({.backward_overwrites = true}).add("weight", {count}); }
  Options options() {
    Options chosen;
    chosen.max_grad_norm = 1.0;
    chosen.device = &device;
    return chosen;
  }
  template <class Write>
  void backward(const Write& write) {
    trainer.backward(model.root(), [&](auto, auto gradients) { write(gradients[weight].data()); });
  }
  void step() {
    backward([](auto*) {});  // the gradient of the last step is still there
    trainer.step();
  }

  HostDevice device;
  Model model;
  Parameter weight;
  Solo communicator;
  Trainer trainer;
};

/// First step of AdamW from zero states: the update has the size of lr, against the gradient.
template <class Precision>
bool moves_as_adamw(StepBench<Precision>& bench) {
  const Elements probe = count / 3;
  float before = 0;
  float after = 0;
  const auto read = [&](float& value) {
    bench.trainer.summon_full(bench.model.root(),
                              [&](auto full) { value = full[bench.weight][probe]; });
  };
  read(before);
  bench.backward([](auto* gradient) {
    for (Elements i = 0; i < count; ++i)
      gradient[i] = from_float<std::remove_pointer_t<decltype(gradient)>>(i % 2 == 0 ? 1.F : -1.F);
  });
  bench.trainer.step().wait();
  read(after);
  const float direction = probe % 2 == 0 ? 1.F : -1.F;
  const float expected = before * (1 - 1e-3F * 0.1F) - 1e-3F * direction;
  return std::fabs(after - expected) < 2e-6F;
}

void whole_step(benchmark::State& state) {
  StepBench<precision::Full<float>> bench;
  if (!moves_as_adamw(bench)) {
    all_right = false;
    return state.SkipWithError("wrong result");
  }
  Arena arena;
  auto* g = arena.array<float>(count);
  float* streams[3];
  for (float*& stream : streams) stream = arena.array<float>(count);
  for (Elements i = 0; i < count; ++i)
    g[i] = streams[0][i] = streams[1][i] = streams[2][i] = static_cast<float>(i % 7);
  const auto size = static_cast<std::size_t>(count);
  measure(
      state, step_bytes, [&] { bench.step(); },
      {{"read and update in place", [&] {
          benchmark::DoNotOptimize(read_all(reinterpret_cast<const std::uint64_t*>(g), size / 2));
          update3(g, streams[0], streams[1], streams[2], size);
        }}});
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("whole_step_fp32", flatshard_bench::whole_step)
      ->Iterations(flatshard_bench::rounds)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  if (!flatshard_bench::all_right) std::fputs("a result was wrong\n", stderr);
  return flatshard_bench::all_right ? 0 : 1;
}
