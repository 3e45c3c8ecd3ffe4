// The runtime's functions of events.
#include "capture.hpp"

struct CUevent_st {
  int device;
  mutable std::mutex mutex;           // guards the rest
  emulated::Mark mark;                // of the last record
  emulated::CapturedMark in_capture;  // the same, where its stream was being captured
};

using namespace emulated;

namespace {

struct Recorded {
  Mark mark;
  CapturedMark in_capture;
};
Recorded last_record(const CUevent_st& event) {
  const std::lock_guard lock(event.mutex);
  return {event.mark, event.in_capture};
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{current_device(), {}, {}, {}};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;  // waits that were issued keep the mark
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const CUstream_st& stream = stream_of(handle);
  if (event->device != stream.progress->device) return result(cudaErrorInvalidResourceHandle);
  CapturedMark in_capture = captured_mark(stream);
  const std::lock_guard lock(event->mutex);
  if (in_capture.capture == nullptr) event->mark = {stream.progress, stream.progress->issued()};
  event->in_capture = std::move(in_capture);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Recorded recorded = last_record(*event);
  if (recorded.in_capture.capture != nullptr) return result(cudaErrorCapturedEvent);
  return recorded.mark.is_complete() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Recorded recorded = last_record(*event);
  if (recorded.in_capture.capture != nullptr) return result(cudaErrorCapturedEvent);
  recorded.mark.wait();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  CUstream_st& stream = stream_of(handle);
  const Recorded recorded = last_record(*event);
  if (recorded.in_capture.capture != nullptr || capture_of(stream) != nullptr)
    return wait_in_capture(stream, recorded.in_capture);
  if (!recorded.mark.is_complete() && recorded.mark.stream != stream.progress)
    enqueue(stream, Work([mark = recorded.mark] { mark.wait(); }));
  return cudaSuccess;
}

}  // extern "C"
