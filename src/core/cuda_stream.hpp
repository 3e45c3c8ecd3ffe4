// CUDA streams and events.
#pragma once

#include <flatshard/core/stream.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_check.hpp"

namespace flatshard::detail {

/// Watches work that may never end by itself: collectives, whose peers may be gone.
class StreamMonitor {
 public:
  virtual ~StreamMonitor() = default;
  /// Throws when the work failed or will not end; `waited` is how long somebody has waited for it.
  virtual void poll(std::chrono::steady_clock::duration waited) = 0;
};

class StreamMonitors;

/// Those of all streams of one device. Thread-safe.
class DeviceMonitors {
 public:
  void add(const std::shared_ptr<const StreamMonitors>& of_stream);
  bool empty() const;  // nothing to poll
  /// By the thread that issues what they watch.
  void poll(std::chrono::steady_clock::duration waited) const;
  /// The calling thread issues it, from now on; whether it does.
  void set_issuing() noexcept { issuing_.store(std::this_thread::get_id()); }
  bool is_issuing() const noexcept { return issuing_.load() == std::this_thread::get_id(); }

  /// Collectives of the device are about to be aborted for `reason`: their kernels end, and what
  /// streams do after them has nothing to work on.
  void note_abort(const std::exception_ptr& reason) noexcept;
  /// How often; a thread that has seen work of a stream end sees every abort that ended it.
  std::uint64_t aborts() const noexcept { return aborts_.load(); }
  std::exception_ptr abort_reason() const noexcept;  // the last

 private:
  std::shared_ptr<const StreamMonitors> next(std::size_t& at) const;  // null: no more

  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<const StreamMonitors>> streams_;
  std::exception_ptr abort_reason_;
  std::atomic<std::thread::id> issuing_{};
  std::atomic<std::uint64_t> aborts_{0};
};

/// Those of one stream. Who issues collectives polls those of the whole device while it waits, if
/// the stream knows that: its work may come after theirs. Other threads may not look at them.
class StreamMonitors {
 public:
  explicit StreamMonitors(std::shared_ptr<DeviceMonitors> device = nullptr)
      : device_(std::move(device)) {}
  void add(const std::shared_ptr<StreamMonitor>& monitor);
  bool empty() const { return polls_device() ? device_->empty() : monitors_.empty(); }
  void poll(std::chrono::steady_clock::duration waited) const;
  DeviceMonitors* device() const { return device_.get(); }

 private:
  friend class DeviceMonitors;
  bool polls_device() const { return device_ != nullptr && device_->is_issuing(); }

  std::shared_ptr<DeviceMonitors> device_;
  std::vector<std::shared_ptr<StreamMonitor>> monitors_;
};

/// Blocks until `query` says cudaSuccess, polling the monitors; throws what either says.
void wait_for_cuda(cudaError_t (*query)(void*), void* what, const StreamMonitors& monitors);

class CudaLink;

/// Recorded by a stream of the device or by the lane of its host.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int ordinal);
  ~CudaEvent() override;
  void synchronize() override;
  bool is_complete() const override;

 private:
  friend class CudaStream;
  friend class CudaLink;
  cudaEvent_t event_ = nullptr;
  std::shared_ptr<const StreamMonitors> monitors_;  // of the stream that recorded it last
  cudaStream_t recorder_ = nullptr;                 // that stream
  unsigned long long capture_ = 0;                  // in which graph it was recorded last; 0: none
  std::shared_ptr<CudaLink> lane_;                  // the lane recorded it last; null: a stream
  std::uint64_t lane_target_ = 0;                   // its number then
};

class CudaStream final : public Stream {
 public:
  /// A stream of its own, which no default stream waits for; `device`: what it polls with.
  CudaStream(int ordinal, int priority, std::shared_ptr<DeviceMonitors> device = nullptr);
  /// Somebody else's.
  explicit CudaStream(cudaStream_t stream)
      : stream_(stream), owned_(false), monitors_(std::make_shared<StreamMonitors>()) {}
  ~CudaStream() override;

  /// Of an event and a stream of which one belongs to a graph that is being captured and the other
  /// does not, the wait is nothing: a graph is launched after what came before, and before what
  /// comes after. But a stream joins a capture by waiting for one of its events.
  void record(Event& event) override;
  void wait(Event& event) override;
  void check() override;
  void synchronize() override;

  cudaStream_t native() const { return stream_; }
  /// From now on whoever waits for this stream polls `monitor`. Allocates the first time.
  void watch(const std::shared_ptr<StreamMonitor>& monitor) { monitors_->add(monitor); }
  const std::shared_ptr<StreamMonitors>& monitors() const { return monitors_; }
  /// The graph that this stream is being captured into; 0: none.
  unsigned long long capture() const;

 private:
  void wait_for_lane(const CudaEvent& mark);

  cudaStream_t stream_ = nullptr;
  bool owned_ = true;
  std::shared_ptr<StreamMonitors> monitors_;
};

/// The CUDA stream behind `stream`; throws UsageError when it is none.
CudaStream& as_cuda_stream(StreamRef stream);

}  // namespace flatshard::detail
