// Timing on a CUDA device: medians of batches of launches between two events, as TB/s and as the
// share of a copy that the same process timed.
#pragma once

#include <flatshard/core/cuda_device.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace flatshard_bench {

using namespace flatshard;

inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}

/// One device, its stream, and memory that is cut from one block and given back all at once.
class CudaBench {
 public:
  explicit CudaBench(Bytes bytes) : memory_(device.memory(), bytes) {
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  CudaDevice device;
  std::unique_ptr<Stream> stream = device.make_compute_stream();
  cudaStream_t native() const { return static_cast<cudaStream_t>(cuda_stream(*stream)); }
  const KernelTable& kernels() const { return device.kernels(); }

  void reset() { used_ = 0; }
  template <class Element>
  Element* array(Elements count) {
    void* data = static_cast<std::byte*>(memory_.data()) + used_;
    used_ += round_up(count * static_cast<Bytes>(sizeof(Element)), 256);
    if (used_ > memory_.size()) check(cudaErrorMemoryAllocation, "the bench's own memory");
    return static_cast<Element*>(data);
  }
  /// Uniform in [lo, 1).
  template <class Element>
  Element* filled(Elements count, std::uint64_t seed, double lo = -1) {
    Element* data = array<Element>(count);
    kernels().fill(init::uniform{lo, 1, seed}, dtype_of<Element>, data, 0, count, *stream);
    return data;
  }

  /// Median milliseconds of one call of `run`.
  double milliseconds(const std::function<void()>& run) {
    run();
    run();
    const int calls = static_cast<int>(std::clamp(3.0 / one_batch(run, 1), 1.0, 50.0));
    std::vector<double> times;
    for (int batch = 0; batch < 7; ++batch) times.push_back(one_batch(run, calls));
    std::nth_element(times.begin(), times.begin() + 3, times.end());
    return times[3];
  }

 private:
  double one_batch(const std::function<void()>& run, int calls) {
    check(cudaEventRecord(begin_, native()), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) run();
    check(cudaEventRecord(end_, native()), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(elapsed) / calls;
  }

  Buffer memory_;
  Bytes used_ = 0;
  cudaEvent_t begin_{};
  cudaEvent_t end_{};
};

/// Elements of a flat buffer, with a name for them.
struct Size {
  const char* name;
  Elements count;
};

/// Prints one line per result.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}
  void set_copy(double terabytes_per_second) { copy_ = terabytes_per_second; }
  void add(const std::string& name, const std::string& size, Bytes bytes, double milliseconds) {
    const double rate = static_cast<double>(bytes) * 1e-9 / milliseconds;
    if (json_)
      std::printf(
          "{\"bench\": \"%s\", \"size\": \"%s\", \"bytes\": %lld, \"ms\": %.5f, "
          "\"tb_s\": %.4f, \"share\": %.4f}\n",
          name.c_str(), size.c_str(), static_cast<long long>(bytes), milliseconds, rate,
          copy_ > 0 ? rate / copy_ : 0.0);
    else
      std::printf("%-44s %10s %14lld B %10.4f ms %7.3f TB/s %6.3f of the copy\n", name.c_str(),
                  size.c_str(), static_cast<long long>(bytes), milliseconds, rate,
                  copy_ > 0 ? rate / copy_ : 0.0);
    std::fflush(stdout);
  }

 private:
  bool json_;
  double copy_ = 0;
};

}  // namespace flatshard_bench
