// AdamW on the host, row by row: the step, an in-place update of the same arrays and a copy of as
// many bytes take turns, five times; medians are compared. Every row is checked first; the program
// fails if a result was wrong.
//
//   host_step_bench [ELEMENTS [THREADS [pin]]]         default: 2^26 elements, 1 thread; a table
//   host_step_bench ELEMENTS THREADS pin|float turns   reads names of rows from standard input; one
//                                                      step for each, its seconds in a line
#include <flatshard/core/host_memory.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/ops/optimizer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../kernels/host/affinity.hpp"
#include "../kernels/host/thread_team.hpp"
#include "rivals.hpp"

namespace flatshard_bench {
namespace {

using namespace flatshard;

constexpr int rounds = 5;

struct Row {
  const char* name;
  StepRow dtypes;
};
constexpr auto f32 = DType::Float32, bf16 = DType::BFloat16, f16 = DType::Float16;
constexpr Row rows[] = {{"bf16-gradient-bf16-copy", {f32, bf16, f32, bf16, true, false}},
                        {"fp16-gradient-fp16-copy", {f32, f16, f32, f16, true, false}},
                        {"fp32-gradient-bf16-copy", {f32, f32, f32, bf16, true, false}},
                        {"fp32-gradient", {f32, f32, f32, f32, false, false}},
                        {"bf16-parameter-bf16-gradient", {bf16, bf16, f32, bf16, false, false}}};

/// Read and written by a step of one element.
Bytes bytes_of(const StepRow& row) {
  return 2 * size_of(row.master) + size_of(row.gradient) + 4 * size_of(row.state) +
         (row.writes_copy ? size_of(row.copy) : 0);
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of magnitude below 2^-3, exact in every dtype of the rows; differs from element to element.
float value(Elements i, int stream) {
  const auto word =
      static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(stream) * 40503U;
  return static_cast<float>(static_cast<std::int32_t>(word) >> 25) * 0x1p-10F;
}

/// The arrays of one row, skewed as an engine skews them, and its step.
class StepBench {
 public:
  StepBench(const Row& row, Elements count, int threads, bool pinned)
      : row_(row),
        count_(count),
        device_({.threads = threads, .pin_as_rank = pinned ? std::optional<int>{0} : std::nullopt}),
        stream_(device_.make_stream()),
        team_(threads, pinned ? host::cores_of_rank(0, threads) : std::vector<int>{}) {
    arguments_.row = row.dtypes;
    arguments_.count = count;
    arguments_.scalars = &scalars_;
    arguments_.time = &time_;
    arguments_.functor = optimizer_.functor();
    arguments_.master = filled(row.dtypes.master, 0);
    arguments_.gradient = filled(row.dtypes.gradient, 1);
    arguments_.states[0] = filled(row.dtypes.state, 2);
    arguments_.states[1] = filled(row.dtypes.state, 3);
    if (row.dtypes.writes_copy) arguments_.copy = filled(row.dtypes.copy, 4);
    check();
  }

  void step() { device_.kernels().step(optimizer_.host_step(row_.dtypes), arguments_, *stream_); }
  /// The same bytes; none for a bf16 master.
  std::function<void()> update() {
    if (row_.dtypes.master != f32) return {};
    return [this] {
      team_.for_chunks(count_, [&](Elements begin, Elements end) { update_part(begin, end); });
    };
  }
  /// From the first state to the second and back, until as many bytes were read and written.
  void copy() {
    const Bytes state = count_ * size_of(row_.dtypes.state);
    Bytes left = count_ * bytes_of(row_.dtypes) / 2;
    for (std::size_t from = 0; left > 0; from = 1 - from, left -= state)
      team_.for_chunks(std::min(left, state), [&](Bytes begin, Bytes end) {
        stream_copy(static_cast<const std::byte*>(arguments_.states[from]) + begin,
                    static_cast<std::byte*>(arguments_.states[1 - from]) + begin,
                    static_cast<std::size_t>(end - begin) / 64 * 64);
      });
  }

 private:
  void* filled(DType dtype, int stream) {
    const Bytes skew = static_cast<Bytes>(blocks_.size()) * (128 << 10);
    blocks_.emplace_back(memory_, count_ * size_of(dtype) + skew);
    void* begin = static_cast<std::byte*>(blocks_.back().data()) + skew;
    team_.for_chunks(count_, [&](Elements from, Elements to) {
      for (Elements i = from; i < to; ++i) set(begin, dtype, i, start(i, stream));
    });
    return begin;
  }
  static float start(Elements i, int stream) {
    const float any = value(i, stream);
    return stream == 3 && any < 0 ? -any : any;  // the second moment
  }
  static void set(void* array, DType dtype, Elements i, float x) {
    if (dtype == f32) static_cast<float*>(array)[i] = x;
    if (dtype == bf16) static_cast<Bf16*>(array)[i] = from_float<Bf16>(x);
    if (dtype == f16) static_cast<Half*>(array)[i] = from_float<Half>(x);
  }
  /// The first step, on every 61st element.
  void check() {
    step();
    const auto with = AdamW{}.coefficients<float>(1);
    for (Elements i = 0; i < count_; i += 61) {
      float parameter = start(i, 0), states[max_optimizer_states] = {start(i, 2), start(i, 3), 0};
      AdamW::update(with, parameter, start(i, 1), states);
      if (holds(arguments_.master, row_.dtypes.master, i, parameter) &&
          holds(arguments_.states[0], f32, i, states[0]) &&
          holds(arguments_.states[1], f32, i, states[1]) &&
          (!row_.dtypes.writes_copy || holds(arguments_.copy, row_.dtypes.copy, i, parameter)))
        continue;
      throw std::runtime_error(fmt::format("{}: a result was wrong", row_.name));
    }
  }
  static bool holds(const void* array, DType dtype, Elements i, float x) {
    if (dtype == f32) return static_cast<const float*>(array)[i] == x;
    if (dtype == bf16)
      return to_float(static_cast<const Bf16*>(array)[i]) == to_float(from_float<Bf16>(x));
    return to_float(static_cast<const Half*>(array)[i]) == to_float(from_float<Half>(x));
  }
  void update_part(Elements begin, Elements end) const {
    const auto size = static_cast<std::size_t>(end - begin);
    auto* p = static_cast<float*>(arguments_.master) + begin;
    auto* m = static_cast<float*>(arguments_.states[0]) + begin;
    auto* v = static_cast<float*>(arguments_.states[1]) + begin;
    auto* copy = static_cast<std::uint16_t*>(arguments_.copy);
    if (row_.dtypes.gradient != f32)
      update3_and_copy(static_cast<const std::uint16_t*>(arguments_.gradient) + begin, p, m, v,
                       copy + begin, size);
    else if (copy != nullptr)
      update3_and_copy(static_cast<const float*>(arguments_.gradient) + begin, p, m, v,
                       copy + begin, size);
    else
      update3(static_cast<const float*>(arguments_.gradient) + begin, p, m, v, size);
  }

  const Row& row_;
  Elements count_;
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
  host::ThreadTeam team_;
  HostMemory memory_;
  std::vector<Buffer> blocks_;
  Optimizer optimizer_{AdamW{}};
  StepScalars scalars_{1.0, 1};
  std::int64_t time_ = 1;
  StepArguments arguments_{};
};

void print_row(const Row& row, StepBench& bench, Elements count) {
  std::vector<double> step, update, copy;
  for (int round = 0; round < rounds; ++round) {
    if (const auto run = bench.update()) update.push_back(seconds_of(run));
    copy.push_back(seconds_of([&] { bench.copy(); }));
    step.push_back(seconds_of([&] { bench.step(); }));
  }
  const double time = median(step);
  const Bytes bytes = bytes_of(row.dtypes);
  const double gigabytes = 1e-9 * static_cast<double>(bytes * count);
  fmt::print("| {} | {} | {:.2f} | {:.1f} | {} | {:.2f} |\n", row.name, bytes, 1e3 * time,
             gigabytes / time, update.empty() ? "-" : fmt::format("{:.2f}", median(update) / time),
             median(copy) / time);
  std::fflush(stdout);
}

void print_table(Elements count, int threads, bool pinned) {
  fmt::print("AdamW on {} elements, {} thread{}{}\n\n", count, threads, threads == 1 ? "" : "s",
             pinned ? ", pinned" : "");
  fmt::print("| row | bytes per element | ms | GB/s | of in-place update | of copy |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    StepBench bench(row, count, threads, pinned);
    print_row(row, bench, count);
  }
}

void take_turns(Elements count, int threads, bool pinned) {
  std::vector<std::unique_ptr<StepBench>> benches(std::size(rows));
  for (std::string name; std::getline(std::cin, name);) {
    const Row* row = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const Row& each) { return each.name == name; });
    if (row == std::end(rows)) throw std::runtime_error("no row is called " + name);
    auto& bench = benches[static_cast<std::size_t>(row - rows)];
    if (!bench) bench = std::make_unique<StepBench>(*row, count, threads, pinned);
    fmt::print("{:.9f}\n", seconds_of([&] { bench->step(); }));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  const Elements count = argc > 1 ? std::atoll(argv[1]) : Elements{1} << 26;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const bool pinned = argc > 3 && std::strcmp(argv[3], "pin") == 0;
  if (count < 1 || threads < 1) throw std::runtime_error("host_step_bench [ELEMENTS [THREADS]]");
  if (argc > 4 && std::strcmp(argv[4], "turns") == 0)
    take_turns(count, threads, pinned);
  else
    print_table(count, threads, pinned);
  return 0;
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) try {
  return flatshard_bench::run(argc, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "host_step_bench: %s\n", error.what());
  return 1;
}
