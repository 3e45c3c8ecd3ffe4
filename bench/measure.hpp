// Interleaved measurement: kernel and rivals take turns, medians are compared.
#pragma once

#include <flatshard/core/host_memory.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace flatshard_bench {

using namespace flatshard;

inline constexpr int rounds = 5;

/// Co-streamed buffers whose addresses differ by a multiple of 2^27 bytes collide in some caches:
/// buffer k starts k * 128 KiB after an aligned address.
class Arena {
 public:
  void* allocate(Bytes bytes) {
    const Bytes skew = static_cast<Bytes>(blocks_.size()) * (128 << 10);
    blocks_.emplace_back(memory_, bytes + skew);
    return static_cast<std::byte*>(blocks_.back().data()) + skew;
  }
  template <class Element>
  Element* array(Elements count) {
    return static_cast<Element*>(allocate(count * static_cast<Bytes>(sizeof(Element))));
  }

 private:
  HostMemory memory_;
  std::vector<Buffer> blocks_;
};

struct Rival {
  const char* name;
  std::function<void()> run;
};

inline double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Kernel and rivals move the same `bytes` (read + written). Counters: GB/s of both and the share
/// of the faster rival that the kernel reaches.
inline void measure(benchmark::State& state, Bytes bytes, const std::function<void()>& kernel,
                    const std::vector<Rival>& rivals) {
  std::vector<double> own;
  std::vector<std::vector<double>> others(rivals.size());
  for (const Rival& rival : rivals) rival.run();
  kernel();
  for (auto _ : state) {
    for (std::size_t i = 0; i < rivals.size(); ++i) others[i].push_back(seconds_of(rivals[i].run));
    own.push_back(seconds_of(kernel));
    state.SetIterationTime(own.back());
  }
  double rival = median(others[0]);
  for (const auto& times : others) rival = std::min(rival, median(times));
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["GB/s"] = gigabytes / median(own);
  state.counters["rival_GB/s"] = gigabytes / rival;
  state.counters["share"] = rival / median(own);
}

}  // namespace flatshard_bench
