// The emulated runtime is as unforgiving as CUDA: work is late, and what is wrong is an error.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

namespace {

struct Stream {
  Stream() {
    REQUIRE(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, 0) == cudaSuccess);
  }
  ~Stream() {
    open = true;
    cudaStreamSynchronize(handle);
    cudaStreamDestroy(handle);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Until open is true.
  void block() {
    const auto wait = [](void* gate) {
      while (!static_cast<std::atomic<bool>*>(gate)->load()) std::this_thread::yield();
    };
    REQUIRE(cudaLaunchHostFunc(handle, wait, &open) == cudaSuccess);
  }
  cudaStream_t handle = nullptr;
  std::atomic<bool> open{false};
};

struct Event {
  Event() { REQUIRE(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming) == cudaSuccess); }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t handle = nullptr;
};

struct Floats {
  Floats() { REQUIRE(cudaMalloc(reinterpret_cast<void**>(&at), 4 * sizeof(float)) == cudaSuccess); }
  ~Floats() { cudaFree(at); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* at = nullptr;
};

cudaError_t copy(void* to, const void* from, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, 4 * sizeof(float), cudaMemcpyDefault, stream);
}

}  // namespace

TEST_CASE("emulated: memory is poisoned; work waits for its stream, and events for it") {
  const Floats floats;
  CHECK(std::isnan(floats.at[3]));
  Stream first, second;
  const Event event;
  CHECK(cudaEventQuery(event.handle) == cudaSuccess);  // never recorded
  first.block();
  REQUIRE(cudaMemsetAsync(floats.at, 0, 16, first.handle) == cudaSuccess);
  REQUIRE(cudaEventRecord(event.handle, first.handle) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(second.handle, event.handle, 0) == cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(cudaEventQuery(event.handle) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(second.handle) == cudaErrorNotReady);
  first.open = true;
  CHECK(cudaStreamSynchronize(second.handle) == cudaSuccess);
  CHECK(cudaEventQuery(event.handle) == cudaSuccess);
  CHECK(floats.at[3] == 0);
}

TEST_CASE("emulated: a wait is for the record before it") {
  Stream first, second;
  const Event event;
  REQUIRE(cudaEventRecord(event.handle, first.handle) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(second.handle, event.handle, 0) == cudaSuccess);
  first.block();
  REQUIRE(cudaEventRecord(event.handle, first.handle) == cudaSuccess);
  CHECK(cudaStreamSynchronize(second.handle) == cudaSuccess);
  CHECK(cudaEventQuery(event.handle) == cudaErrorNotReady);
}

TEST_CASE("emulated: what is pageable is read at once, and written before the call returns") {
  const Floats floats;
  Stream stream;
  std::vector<float> host{1, 2, 3, 4};
  stream.block();
  REQUIRE(copy(floats.at, host.data(), stream.handle) == cudaSuccess);
  host = {5, 6, 7, 8};
  stream.open = true;
  REQUIRE(copy(host.data(), floats.at, stream.handle) == cudaSuccess);
  CHECK(host == std::vector<float>{1, 2, 3, 4});
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, host.data()) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  REQUIRE(cudaPointerGetAttributes(&attributes, floats.at + 3) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
}

TEST_CASE("emulated: an event of another device, an old handle and too much memory are errors") {
  const Event event;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Stream there;
  CHECK(cudaEventRecord(event.handle, there.handle) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaSetDevice(100) == cudaErrorInvalidDevice);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::size_t{1} << 50) == cudaErrorMemoryAllocation);
  CHECK(cudaHostUnregister(&memory) == cudaErrorHostMemoryNotRegistered);
}

TEST_CASE("emulated: a graph runs when it is launched; streams that did not rejoin are refused") {
  const Floats floats;
  Stream first, second;
  const Event fork, join;
  for (const bool joins : {true, false}) {
    REQUIRE(cudaStreamBeginCapture(first.handle, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    REQUIRE(cudaEventRecord(fork.handle, first.handle) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(second.handle, fork.handle, 0) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(floats.at, 0, 16, second.handle) == cudaSuccess);
    REQUIRE(cudaEventRecord(join.handle, second.handle) == cudaSuccess);
    if (joins) REQUIRE(cudaStreamWaitEvent(first.handle, join.handle, 0) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(first.handle, &graph) ==
          (joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    if (!joins) break;
    CHECK(std::isnan(floats.at[0]));
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(executable, first.handle) == cudaSuccess);
    CHECK(cudaStreamSynchronize(first.handle) == cudaSuccess);
    CHECK(floats.at[0] == 0);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}
