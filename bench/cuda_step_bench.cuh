// Optimizer steps on a CUDA device: any functor, row, pack and parameter groups.
#pragma once

#include <flatshard/ops/optimizer.hpp>

#include <cstring>

#include "../kernels/cuda/step.cuh"
#include "cuda_measure.hpp"

namespace flatshard_bench {

/// The streams of a step of any row.
template <class Types>
struct StepMemory {
  StepArguments arguments{};
  StepScalars* scalars;
  std::int64_t* time;

  StepMemory(CudaBench& bench, Elements count, int states) {
    using Copy =
        std::conditional_t<Types::writes_copy, typename Types::Copy, typename Types::Master>;
    arguments.master = bench.filled<typename Types::Master>(count, 1);
    arguments.gradient = bench.filled<typename Types::Gradient>(count, 2);
    for (int k = 0; k < states; ++k)
      arguments.states[static_cast<std::size_t>(k)] =
          bench.filled<typename Types::State>(count, static_cast<std::uint64_t>(3 + k), 0.01);
    if (Types::writes_copy) arguments.copy = bench.array<Copy>(count);
    scalars = bench.array<StepScalars>(1);
    time = bench.array<std::int64_t>(1);
    const StepScalars one{1.0, 1};
    const std::int64_t step = 100;
    bench.device.copy(&one, scalars, sizeof one, *bench.stream);
    bench.device.copy(&step, time, sizeof step, *bench.stream);
    bench.stream->synchronize();
    arguments.count = count;
    arguments.scalars = scalars;
    arguments.time = time;
    arguments.seed = 1;
    arguments.row = Types::row();
  }
};

template <class Functor, class Types>
constexpr Bytes step_bytes = [] {
  Bytes bytes = 2 * sizeof(typename Types::Master) + sizeof(typename Types::Gradient) +
                2 * state_count<Functor> * sizeof(typename Types::State);
  if constexpr (Types::writes_copy) bytes += sizeof(typename Types::Copy);
  return bytes;
}();

/// `ranges` equal parts with hyper-parameters of their own, in one launch or each by itself.
template <class Functor, class Types, int Count = cuda::step_pack<Types>, int Blocks = 4>
void step_bench(CudaBench& bench, Report& report, const std::string& name, const Size& size,
                const Functor& functor, const std::vector<Elements>& begins = {0},
                bool one_launch = true) {
  bench.reset();
  StepMemory<Types> memory(bench, size.count, state_count<Functor>);
  std::vector<StepArguments> ranges;
  for (std::size_t k = 0; k < begins.size(); ++k) {
    StepArguments range = memory.arguments;
    const Elements begin = begins[k];
    const Elements end = k + 1 < begins.size() ? begins[k + 1] : size.count;
    const auto advance = [&](void*& pointer, DType dtype) {
      if (pointer != nullptr) pointer = static_cast<std::byte*>(pointer) + begin * size_of(dtype);
    };
    advance(range.master, range.row.master);
    for (void*& state : range.states) advance(state, range.row.state);
    advance(range.copy, range.row.copy);
    range.gradient =
        static_cast<const std::byte*>(range.gradient) + begin * size_of(range.row.gradient);
    range.count = end - begin;
    range.canonical = begin;
    Functor own = functor;
    own.weight_decay = k % 2 == 0 ? functor.weight_decay : 0;
    std::memcpy(range.functor.data(), &own, sizeof own);
    ranges.push_back(range);
  }
  const StepFunctions functions(CudaStep{cuda::launch_step<Functor, Types, Count, Blocks>});
  report.add(name, size.name, size.count * step_bytes<Functor, Types>, bench.milliseconds([&] {
    if (one_launch)
      bench.kernels().step_ranges(functions, ranges, *bench.stream);
    else
      for (const StepArguments& range : ranges)
        bench.kernels().step(functions, range, *bench.stream);
  }));
}

template <class Types, int Count, int Blocks>
void step_variant(CudaBench& bench, Report& report, const std::string& name, const Size& size) {
  const std::string variant =
      name + ", " + std::to_string(Count) + " per thread, " + std::to_string(Blocks) + " blocks";
  step_bench<AdamW, Types, Count, Blocks>(bench, report, variant, size, AdamW{.lr = 1e-4});
}

}  // namespace flatshard_bench
