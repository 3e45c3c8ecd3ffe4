// Capture, and the runtime's functions of graphs.
#include "capture.hpp"

#include <algorithm>

struct CUgraph_st {
  emulated::Array<emulated::Work> work;
};
struct CUgraphExec_st {
  emulated::Array<emulated::Work> work;
};

namespace emulated {
namespace {

std::mutex& capturing() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

/// The same, by who holds the lock.
Capture* active(const CUstream_st& stream) {
  Capture* const capture = stream.capture.get();
  return capture != nullptr && !capture->ended ? capture : nullptr;
}

/// Whether all that the capture's streams were given comes before where `origin` is.
bool is_joined(Capture& capture, const Progress* origin) {
  const Seen& seen = capture.streams[origin];
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const auto& of_stream) {
    const auto found = seen.find(of_stream.first);
    return found != seen.end() && found->second >= of_stream.second.at(of_stream.first);
  });
}

}  // namespace

std::shared_ptr<Capture> capture_of(const CUstream_st& stream) {
  const std::lock_guard lock(capturing());
  return active(stream) != nullptr ? stream.capture : nullptr;
}

bool add_to_capture(CUstream_st& stream, const Work& work) {
  const std::lock_guard lock(capturing());
  Capture* const capture = active(stream);
  if (capture == nullptr) return false;
  capture->work.push_back(work);
  ++capture->streams[stream.progress.get()][stream.progress.get()];
  return true;
}

bool invalidates_capture(const CUstream_st& stream) {
  const std::lock_guard lock(capturing());
  Capture* const capture = active(stream);
  if (capture != nullptr) capture->valid = false;
  return capture != nullptr;
}

CapturedMark captured_mark(const CUstream_st& stream) {
  const std::lock_guard lock(capturing());
  Capture* const capture = active(stream);
  if (capture == nullptr) return {};
  return {stream.capture, capture->streams[stream.progress.get()]};
}

cudaError_t wait_in_capture(CUstream_st& stream, const CapturedMark& mark) {
  const std::lock_guard lock(capturing());
  Capture* const current = active(stream);
  if (mark.capture == nullptr) {  // an event of before the capture
    current->valid = false;
    return result(cudaErrorStreamCaptureIsolation);
  }
  if (mark.capture->ended) return result(cudaErrorCapturedEvent);
  if (current != nullptr && current != mark.capture.get())
    return result(cudaErrorStreamCaptureMerge);
  stream.capture = mark.capture;
  Seen& seen = mark.capture->streams[stream.progress.get()];
  seen.try_emplace(stream.progress.get(), 0);
  for (const auto& [of, count] : mark.seen) seen[of] = std::max(seen[of], count);
  return cudaSuccess;
}

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  static unsigned long long captures = 0;
  if (stream == nullptr || stream == cudaStreamLegacy)
    return result(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(capturing());
  if (active(*stream) != nullptr) return result(cudaErrorIllegalState);
  stream->capture = make_shared<Capture>();
  stream->capture->id = ++captures;
  const Progress* const origin = stream->progress.get();
  stream->capture->streams[origin][origin] = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::lock_guard lock(capturing());
  Capture* const capture = active(*stream);
  if (capture == nullptr) return result(cudaErrorIllegalState);
  capture->ended = true;
  if (!capture->valid) return result(cudaErrorStreamCaptureInvalidated);
  if (!is_joined(*capture, stream->progress.get())) return result(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{capture->work};
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  const auto capture = capture_of(stream_of(handle));
  *status = cudaStreamCaptureStatusNone;
  if (capture == nullptr) return cudaSuccess;
  *status = capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  *id = capture->id;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  enqueue(stream_of(stream), Work([all = executable->work] {
            for (const Work& work : all) work.run();
          }));
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
