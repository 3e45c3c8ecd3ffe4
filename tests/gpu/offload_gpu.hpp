// A CUDA device whose streams a test can slow and whose host stream it can give tasks.
#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/host_stream.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "offload.hpp"
#include "shared_device_world.hpp"

namespace sharder_test {

inline constexpr std::array gpu_places{all_on_host, optimizer_on_host, parameters_on_host};
inline constexpr CudaOptions two_threads{.host_threads = 2};

/// A CUDA device that knows its streams, in the order in which they were made.
class OffloadDevice final : public Device {
 public:
  DeviceKind kind() const override { return device_.kind(); }
  std::string_view name() const override { return device_.name(); }
  MemoryResource& memory() override { return device_.memory(); }
  MemoryResource& host_memory() override { return device_.host_memory(); }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override {
    device_.copy(source, destination, bytes, stream);
  }
  std::unique_ptr<Stream> make_stream() override { return watched(device_.make_stream()); }
  std::unique_ptr<Stream> make_compute_stream() override {
    return watched(device_.make_compute_stream());
  }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }
  const KernelTable& kernels() const override { return device_.kernels(); }
  std::unique_ptr<Stream> make_host_side_stream() override {
    auto stream = device_.make_host_side_stream();
    if (lane_ == nullptr) lane_ = stream.get();
    return stream;
  }
  const KernelTable& host_kernels() const override { return device_.host_kernels(); }

  int streams() const { return static_cast<int>(streams_.size()); }
  HostStream& lane() const { return static_cast<HostStream&>(*lane_); }

  /// In the stream's order, -1: the lane's.
  void sleep_on(int stream, std::chrono::microseconds time) const {
    if (stream < 0) return lane().enqueue([time] { std::this_thread::sleep_for(time); });
    auto* const kept = new std::chrono::microseconds(time);
    const auto sleep = [](void* data) {
      const std::unique_ptr<std::chrono::microseconds> mine(
          static_cast<std::chrono::microseconds*>(data));
      std::this_thread::sleep_for(*mine);
    };
    auto* const native =
        static_cast<cudaStream_t>(cuda_stream(*streams_[static_cast<std::size_t>(stream)]));
    REQUIRE(cudaLaunchHostFunc(native, sleep, kept) == cudaSuccess);
  }

 private:
  std::unique_ptr<Stream> watched(std::unique_ptr<Stream> stream) {
    streams_.push_back(stream.get());
    return stream;
  }
  CudaDevice device_{0, two_threads};
  std::vector<Stream*> streams_;
  Stream* lane_ = nullptr;
};

inline std::unique_ptr<Device> offload_gpu() {
  return std::make_unique<CudaDevice>(0, two_threads);
}

/// The training with ranks as threads on one GPU.
inline Training on_gpu(Training training) {
  training.hooks.run = [](int world, const std::function<void(Communicator&)>& rank_main) {
    flatshard_test::run_on_shared_device(world, offload_gpu, rank_main);
  };
  if (!training.hooks.device)
    training.hooks.device = [](const HostOptions&, Rank) { return offload_gpu(); };
  return training;
}

inline Training placed(Training training, const OffloadTraits& offload) {
  training.options.offload = offload;
  return training;
}

}  // namespace sharder_test
