// Host kernels against the same bytes moved plainly: flatten, casts, reduction, norm, optimizers.
// Every benchmark checks the kernel's result before it measures; main fails if one was wrong.
#include <flatshard/ops/host_device.hpp>
#include <flatshard/ops/optimizer.hpp>

#include <benchmark/benchmark.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <string>

#include "../kernels/host/cache_size.hpp"
#include "../kernels/host/thread_team.hpp"
#include "measure.hpp"
#include "rivals.hpp"

namespace flatshard_bench {
namespace {

/// Elements of an array, a power of two: 128 MiB of fp32, or more where a bf16 array would fit the
/// last-level cache.
const Elements count = [] {
  Elements elements = Elements{32} << 20;
  while (2 * elements < host::last_level_cache()) elements *= 2;
  return elements;
}();
constexpr Elements sample = 61;  // every 61st element is verified

bool all_right = true;

void refuse(benchmark::State& state) {
  all_right = false;
  state.SkipWithError("wrong result");
}

/// A value of magnitude below 1 that differs from element to element.
float value(Elements i, int stream) {
  const auto word =
      static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(stream) * 40503U;
  return std::ldexp(static_cast<float>(static_cast<std::int32_t>(word) >> 7), -24);
}
float positive(Elements i, int stream) { return std::fabs(value(i, stream)); }

/// The device under test and a team of the same size for the rivals.
struct Bench {
  explicit Bench(int threads)
      : device({.threads = threads}), stream(device.make_stream()), team(threads) {}
  HostDevice device;
  std::unique_ptr<Stream> stream;
  host::ThreadTeam team;
  Arena arena;
  const KernelTable& kernels() { return device.kernels(); }

  float* floats(int stream_number) {
    auto* array = arena.array<float>(count);
    team.for_chunks(count, [&](Elements begin, Elements end) {
      for (Elements i = begin; i < end; ++i) array[i] = value(i, stream_number);
    });
    return array;
  }
  Rival memcpy_of(const void* source, void* destination, Bytes bytes) {
    return {"memcpy", [=, this] {
              team.for_chunks(bytes, [&](Bytes begin, Bytes end) {
                std::memcpy(static_cast<std::byte*>(destination) + begin,
                            static_cast<const std::byte*>(source) + begin,
                            static_cast<std::size_t>(end - begin));
              });
            }};
  }
  Rival stream_copy_of(const void* source, void* destination, Bytes bytes) {
    return {"stream copy", [=, this] {
              team.for_chunks(bytes, [&](Bytes begin, Bytes end) {
                stream_copy(static_cast<const std::byte*>(source) + begin,
                            static_cast<std::byte*>(destination) + begin,
                            static_cast<std::size_t>(end - begin));
              });
            }};
  }
};

/// from -> to, out of place; `pieces` > 0: as a flatten of so many tensors.
template <class From, class To>
void cast_bench(benchmark::State& state, int pieces) {
  Bench bench(static_cast<int>(state.range(0)));
  const Bytes bytes = count * static_cast<Bytes>(sizeof(From) + sizeof(To));
  auto* source = static_cast<From*>(bench.arena.allocate(count * 4));
  auto* destination = static_cast<To*>(bench.arena.allocate(count * 4));
  std::memset(destination, 0xa5, static_cast<std::size_t>(count * 4));
  std::memset(source, 0, static_cast<std::size_t>(count * 4));
  for (Elements i = 0; i < count; ++i) source[i] = from_float<From>(value(i, 0));
  std::vector<FlattenPiece> all;
  for (int k = 0; k < pieces; ++k) {
    const Elements begin = count * k / pieces, end = count * (k + 1) / pieces;
    all.push_back({source + begin, begin, end - begin});
  }
  const auto kernel = [&] {
    if (pieces > 0)
      bench.kernels().flatten(all, dtype_of<From>, destination, dtype_of<To>, *bench.stream);
    else
      bench.kernels().cast(source, dtype_of<From>, destination, dtype_of<To>, count, *bench.stream);
  };
  kernel();
  for (Elements i = 0; i < count; i += sample)
    if (to_float(destination[i]) != to_float(from_float<To>(to_float(source[i]))))
      return refuse(state);
  measure(state, bytes, kernel,
          {bench.memcpy_of(source, destination, bytes / 2),
           bench.stream_copy_of(source, destination, bytes / 2)});
}

/// Four contributions into memory of their own.
void reduce_bench(benchmark::State& state) {
  Bench bench(static_cast<int>(state.range(0)));
  std::vector<const void*> sources;
  for (int k = 0; k < 4; ++k) sources.push_back(bench.floats(k));
  auto* destination = bench.floats(9);
  const auto kernel = [&] {
    bench.kernels().reduce(sources, DType::Float32, destination, DType::Float32, count,
                           *bench.stream);
  };
  kernel();
  for (Elements i = 0; i < count; i += sample)
    if (destination[i] != (value(i, 0) + value(i, 1)) + (value(i, 2) + value(i, 3)))
      return refuse(state);
  const Bytes bytes = count * 20;
  // The same bytes as copies: two whole arrays and half of one.
  const auto copies = [&](auto make) {
    auto first = make(sources[0], destination, count * 4);
    auto second = make(sources[1], destination, count * 4);
    auto third = make(sources[2], destination, count * 2);
    return Rival{first.name, [=] { first.run(), second.run(), third.run(); }};
  };
  measure(state, bytes, kernel,
          {copies([&](auto... with) { return bench.memcpy_of(with...); }),
           copies([&](auto... with) { return bench.stream_copy_of(with...); })});
}

double square_tree(const float* x, Elements size) {
  if (size == 1) return static_cast<double>(*x) * *x;
  return square_tree(x, size / 2) + square_tree(x + size / 2, size / 2);
}

void norm_bench(benchmark::State& state) {
  Bench bench(static_cast<int>(state.range(0)));
  const auto* gradient = bench.floats(0);
  const std::vector<NormNode> nodes{
      {0, count, std::countr_zero(static_cast<std::uint64_t>(count))}};
  double sum = 0;
  const auto kernel = [&] {
    bench.kernels().square_sums(gradient, DType::Float32, nodes, &sum, *bench.stream);
  };
  kernel();
  if (sum != square_tree(gradient, count)) return refuse(state);
  const Rival read{"read", [&] {
                     bench.team.for_chunks(count, [&](Elements begin, Elements end) {
                       benchmark::DoNotOptimize(
                           read_all(reinterpret_cast<const std::uint64_t*>(gradient + begin),
                                    static_cast<std::size_t>(end - begin) / 2));
                     });
                   }};
  measure(state, count * 4, kernel, {read});
}

/// Streams of an optimizer's step: parameter, gradient, states, and perhaps a bf16 copy.
struct StepStreams {
  explicit StepStreams(Bench& bench)
      : parameter(bench.floats(0)),
        gradient(bench.floats(1)),
        states{bench.floats(2), bench.floats(3)},
        copy(bench.arena.array<Bf16>(count)) {
    std::memset(copy, 0, static_cast<std::size_t>(count * 2));
    for (Elements i = 0; i < count; ++i) states[1][i] = positive(i, 3);
  }
  float* parameter;
  float* gradient;
  float* states[2];
  Bf16* copy;
};

template <class Functor>
bool is_right(const Functor& functor, const StepStreams& after) {
  const auto with = functor.template coefficients<float>(1);
  for (Elements i = 0; i < count; i += sample) {
    float parameter = value(i, 0);
    float states[max_optimizer_states] = {value(i, 2), positive(i, 3), 0};
    Functor::update(with, parameter, value(i, 1), states);
    if (parameter != after.parameter[i] || states[0] != after.states[0][i]) return false;
    if (state_count < Functor >> 1 && states[1] != after.states[1][i]) return false;
  }
  return true;
}

template <class Functor>
Rival update_of(Bench& bench, const StepStreams& streams, bool copies) {
  return {"in-place update", [&bench, &streams, copies] {
            bench.team.for_chunks(count, [&](Elements begin, Elements end) {
              const auto size = static_cast<std::size_t>(end - begin);
              const float* g = streams.gradient + begin;
              float* p = streams.parameter + begin;
              float* m = streams.states[0] + begin;
              float* v = streams.states[1] + begin;
              if (copies)
                update3_and_copy(g, p, m, v, &streams.copy[begin].bits, size);
              else if (state_count<Functor> == 2)
                update3(g, p, m, v, size);
              else
                update2(g, p, m, size);
            });
          }};
}

template <class Functor>
void step_bench(benchmark::State& state, const Functor& functor, bool copies) {
  Bench bench(static_cast<int>(state.range(0)));
  StepStreams streams(bench);
  const StepScalars scalars{1.0, 1};
  const std::int64_t time = 1;
  StepRow row{DType::Float32, DType::Float32, DType::Float32, DType::Float32, copies, false};
  if (copies) row.copy = DType::BFloat16;
  const Optimizer optimizer(functor);
  StepArguments arguments{};
  arguments.master = streams.parameter;
  arguments.gradient = streams.gradient;
  for (int k = 0; k < state_count<Functor>; ++k)
    arguments.states[static_cast<std::size_t>(k)] = streams.states[k];
  arguments.copy = copies ? streams.copy : nullptr;
  arguments.count = count;
  arguments.scalars = &scalars;
  arguments.time = &time;
  arguments.row = row;
  arguments.functor = optimizer.functor();
  const HostStep step = optimizer.host_step(row);
  const auto kernel = [&] { bench.kernels().step(step, arguments, *bench.stream); };
  kernel();
  if (!is_right(functor, streams)) return refuse(state);
  const Bytes bytes = count * (8 * (1 + state_count<Functor>)+4 + (copies ? 2 : 0));
  measure(state, bytes, kernel, {update_of<Functor>(bench, streams, copies)});
}

template <class Function, class... Arguments>
void add(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), function, arguments...)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->Iterations(rounds)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all() {
  add("flatten_fp32", cast_bench<float, float>, 148);
  add("flatten_bf16", cast_bench<Bf16, Bf16>, 148);
  add("flatten_fp32_to_bf16", cast_bench<float, Bf16>, 148);
  add("cast_fp32_to_bf16", cast_bench<float, Bf16>, 0);
  add("cast_bf16_to_fp32", cast_bench<Bf16, float>, 0);
  add("cast_fp32_to_fp16", cast_bench<float, Half>, 0);
  add("cast_fp16_to_fp32", cast_bench<Half, float>, 0);
  add("reduce_4_fp32", reduce_bench);
  add("norm_fp32", norm_bench);
  add("adamw_fp32", step_bench<AdamW>, AdamW{}, false);
  add("adamw_fp32_and_bf16_copy", step_bench<AdamW>, AdamW{}, true);
  add("sgd_momentum_fp32", step_bench<SGD>, SGD{.momentum = 0.9}, false);
  add("lion_fp32", step_bench<Lion>, Lion{}, false);
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  flatshard_bench::add_all();
  benchmark::RunSpecifiedBenchmarks();
  return flatshard_bench::all_right ? 0 : 1;
}
