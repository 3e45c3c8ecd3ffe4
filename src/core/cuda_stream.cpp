#include "cuda_stream.hpp"

#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <thread>

#include "cuda_link.hpp"

namespace flatshard::detail {

using Clock = std::chrono::steady_clock;

namespace {

/// The graph that a stream is being captured into; 0: none.
unsigned long long capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  FLATSHARD_CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id));
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

}  // namespace

void StreamMonitors::add(const std::shared_ptr<StreamMonitor>& monitor) {
  if (device_ != nullptr) device_->set_issuing();
  if (std::find(monitors_.begin(), monitors_.end(), monitor) == monitors_.end())
    monitors_.push_back(monitor);
}

void StreamMonitors::poll(Clock::duration waited) const {
  if (polls_device()) return device_->poll(waited);
  for (const auto& monitor : monitors_) monitor->poll(waited);
}

void DeviceMonitors::add(const std::shared_ptr<const StreamMonitors>& of_stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
  streams_.push_back(of_stream);
}

bool DeviceMonitors::empty() const {
  std::size_t at = 0;
  while (const auto stream = next(at))
    if (!stream->monitors_.empty()) return false;
  return true;
}

void DeviceMonitors::poll(Clock::duration waited) const {
  std::size_t at = 0;
  while (const auto stream = next(at))
    for (const auto& monitor : stream->monitors_) monitor->poll(waited);
}

std::shared_ptr<const StreamMonitors> DeviceMonitors::next(std::size_t& at) const {
  const std::lock_guard lock(mutex_);
  while (at < streams_.size())
    if (auto stream = streams_[at++].lock()) return stream;
  return nullptr;
}

void DeviceMonitors::note_abort(const std::exception_ptr& reason) noexcept {
  const std::lock_guard lock(mutex_);
  abort_reason_ = reason;
  ++aborts_;
}

std::exception_ptr DeviceMonitors::abort_reason() const noexcept {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

// Queries in a tight loop first, for waits of microseconds; monitors look at other processes, so
// they are asked once a millisecond.
void wait_for_cuda(cudaError_t (*query)(void*), void* what, const StreamMonitors& monitors) {
  const Clock::time_point start = Clock::now();
  Clock::duration polled{0};
  for (cudaError_t state = query(what); state != cudaSuccess; state = query(what)) {
    if (state != cudaErrorNotReady) FLATSHARD_CHECK_CUDA(state);
    const Clock::duration waited = Clock::now() - start;
    if (waited < std::chrono::microseconds(50)) continue;
    if (waited - polled >= std::chrono::milliseconds(1)) {
      monitors.poll(waited);
      polled = waited;
    }
    std::this_thread::yield();
  }
  monitors.poll(Clock::duration{0});  // work that was aborted ends too
}

CudaEvent::CudaEvent(int ordinal) {
  const CudaDeviceGuard guard(ordinal);
  FLATSHARD_CHECK_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() { ignore_cuda(cudaEventDestroy(event_)); }

void CudaEvent::synchronize() {
  if (lane_ != nullptr) {
    const auto poll = [this](Clock::duration waited) { lane_->poll(waited); };
    return wait_in_turns([this] { return lane_->has_departed(lane_target_); }, poll);
  }
  if (monitors_ == nullptr || monitors_->empty()) {
    FLATSHARD_CHECK_CUDA(cudaEventSynchronize(event_));
    return;
  }
  const auto query = [](void* event) { return cudaEventQuery(static_cast<cudaEvent_t>(event)); };
  wait_for_cuda(query, event_, *monitors_);
}

bool CudaEvent::is_complete() const {
  if (lane_ != nullptr) return lane_->has_departed(lane_target_);
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  FLATSHARD_CHECK_CUDA(state);
  return true;
}

CudaStream::CudaStream(int ordinal, int priority, std::shared_ptr<DeviceMonitors> device)
    : monitors_(std::make_shared<StreamMonitors>(std::move(device))) {
  if (monitors_->device() != nullptr) monitors_->device()->add(monitors_);
  const CudaDeviceGuard guard(ordinal);
  FLATSHARD_CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
}

CudaStream::~CudaStream() {
  if (owned_) ignore_cuda(cudaStreamDestroy(stream_));
}

void CudaStream::record(Event& event) {
  auto& mark = static_cast<CudaEvent&>(event);
  FLATSHARD_CHECK_CUDA(cudaEventRecord(mark.event_, stream_));
  mark.monitors_ = monitors_;
  mark.recorder_ = stream_;
  mark.capture_ = capture();
  mark.lane_ = nullptr;
}

void CudaStream::wait(Event& event) {
  const auto& mark = static_cast<const CudaEvent&>(event);
  if (mark.lane_ != nullptr) return wait_for_lane(mark);
  const bool recorded_outside = mark.capture_ == 0 && capture() != 0;
  const bool graph_is_made = mark.capture_ != 0 && capture_of(mark.recorder_) != mark.capture_;
  if (recorded_outside || graph_is_made) return;
  FLATSHARD_CHECK_CUDA(cudaStreamWaitEvent(stream_, mark.event_, 0));
}

void CudaStream::wait_for_lane(const CudaEvent& mark) {
  FLATSHARD_EXPECTS(capture() == 0,
                    "a stream that is being captured into a graph cannot wait for work in host "
                    "memory, because a graph runs without the host: use offload::None");
  if (!mark.lane_->has_departed(mark.lane_target_))
    mark.lane_->hold_back(stream_, mark.lane_target_);
}

unsigned long long CudaStream::capture() const { return capture_of(stream_); }

void CudaStream::check() {
  if (capture() != 0) return;  // a query would end the capture
  const cudaError_t state = cudaStreamQuery(stream_);
  if (state != cudaErrorNotReady) FLATSHARD_CHECK_CUDA(state);
  monitors_->poll(Clock::duration{0});
}

void CudaStream::synchronize() {
  if (monitors_->empty()) {
    FLATSHARD_CHECK_CUDA(cudaStreamSynchronize(stream_));
    return;
  }
  const auto query = [](void* stream) {
    return cudaStreamQuery(static_cast<cudaStream_t>(stream));
  };
  wait_for_cuda(query, stream_, *monitors_);
}

CudaStream& as_cuda_stream(StreamRef stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream.get());
  FLATSHARD_EXPECTS(cuda != nullptr,
                    "a stream of a CUDA device is needed: make it by CudaDevice::make_stream or "
                    "adopt_cuda_stream");
  return *cuda;
}

}  // namespace flatshard::detail

namespace flatshard {

std::unique_ptr<Stream> adopt_cuda_stream(void* stream) {
  FLATSHARD_EXPECTS(stream != nullptr,
                    "adopt_cuda_stream: the stream is null, the legacy default stream; streams are "
                    "always named");
  return std::make_unique<detail::CudaStream>(static_cast<cudaStream_t>(stream));
}

void* cuda_stream(StreamRef stream) { return detail::as_cuda_stream(stream).native(); }

}  // namespace flatshard
