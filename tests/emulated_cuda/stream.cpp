// The runtime's functions of streams.
#include "stream.hpp"

#include <algorithm>

#include "capture.hpp"

namespace emulated {
namespace {

/// Never destroyed, as queues may run at the program's end.
struct Streams {
  std::mutex mutex;
  Array<std::weak_ptr<Progress>> all;
  Array<std::weak_ptr<Queue>> shared;  // queues, by device
  Array<std::unique_ptr<CUstream_st>> legacy;
};
Streams& streams() {
  static Streams& instance = *new Streams;
  return instance;
}

std::shared_ptr<Queue> queue_for(int device) {
  static const auto shared = static_cast<std::size_t>(setting("FLATSHARD_EMULATED_QUEUES", 0));
  if (shared == 0) return make_shared<Queue>();
  static std::size_t turn = 0;
  const std::lock_guard lock(streams().mutex);
  auto& queues = streams().shared;
  queues.resize(static_cast<std::size_t>(device_count()) * shared);
  auto& queue = queues[static_cast<std::size_t>(device) * shared + turn++ % shared];
  auto known = queue.lock();
  if (known == nullptr) queue = known = make_shared<Queue>();
  return known;
}

void note(const std::shared_ptr<Progress>& progress) {
  const std::lock_guard lock(streams().mutex);
  std::erase_if(streams().all, [](const auto& stream) { return stream.expired(); });
  streams().all.push_back(progress);
}

Array<Mark> issued_to(int device) {
  const std::lock_guard lock(streams().mutex);
  Array<Mark> marks;
  for (const auto& known : streams().all)
    if (const auto stream = known.lock(); stream && (device < 0 || stream->device == device))
      marks.push_back({stream, stream->issued()});
  return marks;
}

/// Shares no queue.
CUstream_st& legacy_stream() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int device = 0; device < device_count(); ++device)
      streams().legacy.push_back(std::make_unique<CUstream_st>(device, make_shared<Queue>()));
  });
  return *streams().legacy[static_cast<std::size_t>(current_device())];
}

}  // namespace

CUstream_st& stream_of(cudaStream_t handle) {
  expect(handle != cudaStreamPerThread, "the per-thread default stream is not emulated");
  return handle == nullptr || handle == cudaStreamLegacy ? legacy_stream() : *handle;
}

void enqueue(CUstream_st& stream, Work work) {
  if (!add_to_capture(stream, work)) stream.queue->push(std::move(work), stream.progress);
}

void launch(cudaStream_t handle, Work work) {
  CUstream_st& stream = stream_of(handle);
  if (stream.progress->device != current_device())
    result(cudaErrorInvalidResourceHandle);
  else
    enqueue(stream, std::move(work));
}

void wait_for_device(int device) {
  for (const Mark& mark : issued_to(device)) mark.wait();
}

}  // namespace emulated

CUstream_st::CUstream_st(int device, std::shared_ptr<emulated::Queue> of_queue)
    : progress(emulated::make_shared<emulated::Progress>(device)), queue(std::move(of_queue)) {
  emulated::note(progress);
}

CUstream_st::~CUstream_st() = default;

using namespace emulated;

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (flags != cudaStreamNonBlocking) return result(cudaErrorNotSupported);
  *stream = new CUstream_st(current_device(), queue_for(current_device()));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy)
    return result(cudaErrorInvalidResourceHandle);
  delete stream;  // its queue runs what is left
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const CUstream_st& stream = stream_of(handle);
  if (invalidates_capture(stream)) return result(cudaErrorStreamCaptureUnsupported);
  const bool idle = stream.progress->reached(stream.progress->issued());
  return idle ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const CUstream_st& stream = stream_of(handle);
  if (invalidates_capture(stream)) return result(cudaErrorStreamCaptureUnsupported);
  stream.progress->wait(stream.progress->issued());
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  wait_for_device(current_device());
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  enqueue(stream_of(stream), Work([function, data] { function(data); }));
  return cudaSuccess;
}

}  // extern "C"
