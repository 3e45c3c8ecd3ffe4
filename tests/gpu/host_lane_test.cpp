// The lane of a CUDA device: its streams and the host's tasks wait for one another.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

using namespace flatshard;

namespace {

constexpr int count = 1 << 20;
constexpr Bytes bytes = count * static_cast<Bytes>(sizeof(int));

void sleep_on(Stream& stream) {
  const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  REQUIRE(cudaLaunchHostFunc(static_cast<cudaStream_t>(cuda_stream(stream)), sleep, nullptr) ==
          cudaSuccess);
}

struct Rig {
  CudaDevice device{0, {.host_threads = 1}};
  std::unique_ptr<Stream> up = device.make_stream(), down = device.make_stream();
  std::unique_ptr<Stream> side = device.make_host_side_stream();
  HostStream& lane = static_cast<HostStream&>(*side);
  std::unique_ptr<Event> arrived = device.make_event(), made = device.make_event();
  Buffer there{device.memory(), bytes}, here{device.host_memory(), bytes};
  int* numbers = static_cast<int*>(here.data());
};

}  // namespace

TEST_CASE("lane: numbers go round between host and device, slow or not") {
  for (const bool slow : {false, true}) {
    Rig rig;
    std::memset(rig.here.data(), 0, static_cast<std::size_t>(bytes));
    std::atomic<int> wrong{0};
    const int rounds = slow ? 20 : 300;
    for (int round = 0; round < rounds; ++round) {  // more records than the lane's queue holds
      rig.lane.enqueue([&rig, &wrong, round] {
        for (int i = 0; i < count; i += 1024) {
          if (rig.numbers[i] != round) ++wrong;
          rig.numbers[i] = round + 1;
        }
        rig.numbers[count - 1] = round + 1;
      });
      rig.lane.record(*rig.made);
      rig.up->wait(*rig.made);
      if (slow) sleep_on(*rig.up);
      rig.device.copy(rig.here.data(), rig.there.data(), bytes, *rig.up);
      rig.up->record(*rig.arrived);
      rig.down->wait(*rig.arrived);
      rig.device.copy(rig.there.data(), rig.here.data(), bytes, *rig.down);
      rig.down->record(*rig.arrived);
      rig.lane.wait(*rig.arrived);
    }
    rig.lane.synchronize();
    CHECK(wrong == 0);
    CHECK(rig.numbers[count - 1] == rounds);
  }
}

TEST_CASE("lane: a wait is for the record before it, whatever becomes of the event") {
  Rig rig;
  std::atomic<int> seen{0};
  sleep_on(*rig.up);
  rig.up->record(*rig.arrived);
  rig.lane.wait(*rig.arrived);
  rig.lane.enqueue([&] { seen = 1; });
  rig.lane.record(*rig.made);
  rig.up->wait(*rig.made);       // which comes after the lane's wait
  rig.up->record(*rig.arrived);  // the lane must not wait for this one
  rig.up->synchronize();
  CHECK(seen == 1);
  CHECK(rig.made->is_complete());
  rig.made->synchronize();
  CHECK(rig.arrived->is_complete());
}

TEST_CASE("lane: records are complete after a task failed; the error is told once") {
  Rig rig;
  rig.lane.enqueue([] { throw std::runtime_error("poison"); });
  bool ran = false;
  rig.up->record(*rig.arrived);
  rig.lane.wait(*rig.arrived);
  rig.lane.record(*rig.made);
  rig.up->wait(*rig.made);
  rig.up->synchronize();
  CHECK_THROWS_WITH(rig.lane.enqueue([&] { ran = true; }), "poison");
  rig.lane.synchronize();
  CHECK(!ran);
  rig.lane.enqueue([&] { ran = true; });
  rig.lane.synchronize();
  CHECK(ran);
}

TEST_CASE("lane: a new one counts on where an earlier one ended") {
  CudaDevice device(0, {.host_threads = 1});
  const auto stream = device.make_stream();
  const auto event = device.make_event();
  for (int turn = 0; turn < 100; ++turn) {
    const auto side = device.make_host_side_stream();
    auto& lane = static_cast<HostStream&>(*side);
    stream->record(*event);
    lane.wait(*event);
    lane.enqueue([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    lane.record(*event);
    stream->wait(*event);
  }
  stream->synchronize();
  CHECK(event->is_complete());
}

TEST_CASE("lane: a graph cannot hold it") {
  Rig rig;
  rig.lane.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  rig.lane.record(*rig.made);
  CHECK_THROWS_AS(CudaGraph::capture(*rig.up, [&] { rig.up->wait(*rig.made); }), UsageError);
  CHECK_THROWS_AS(CudaGraph::capture(*rig.up,
                                     [&] {
                                       rig.up->record(*rig.arrived);
                                       rig.lane.wait(*rig.arrived);
                                     }),
                  UsageError);
  rig.lane.synchronize();
}

TEST_CASE("kernels on memory that the device does not see: cast and zero go by way of it") {
  Rig rig;
  std::vector<float> wide(70001), back(wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(i) / 8;
  const auto elements = static_cast<Elements>(wide.size());
  std::vector<double> wider(wide.size(), -1);
  const KernelTable& kernels = rig.device.kernels();
  kernels.cast(wide.data(), DType::Float32, wider.data(), DType::Float64, elements, *rig.up);
  kernels.cast(wider.data(), DType::Float64, back.data(), DType::Float32, elements, *rig.up);
  rig.up->synchronize();
  CHECK(back == wide);
  kernels.zero(back.data(), elements * 4, *rig.up);
  rig.up->synchronize();
  CHECK(back == std::vector<float>(wide.size(), 0));
}
