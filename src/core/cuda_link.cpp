#include "cuda_link.hpp"

#include <flatshard/core/error.hpp>

namespace flatshard::detail {

CudaLink::CudaLink(int ordinal, int priority, PinnedCounters& counters,
                   std::shared_ptr<const DeviceMonitors> monitors)
    : ordinal_(ordinal),
      counters_(counters),
      monitors_(std::move(monitors)),
      follower_(ordinal, priority),
      arrivals_(counters.take()),
      departures_(counters.take()),
      followed_(arrivals_.value->load()),
      aborts_before_(monitors_->aborts()) {}

CudaLink::~CudaLink() {
  const cudaError_t state = cudaStreamQuery(follower_.native());
  ignore_cuda(state);
  if (state == cudaErrorNotReady) return;  // after a failure: it may still store what nobody reads
  counters_.give_back(arrivals_);
  counters_.give_back(departures_);
}

std::uint64_t CudaLink::follow(Event& event) {
  const auto& mark = static_cast<const CudaEvent&>(event);
  FLATSHARD_EXPECTS(mark.capture_ == 0,
                    "work in host memory cannot wait for a stream that is being captured into a "
                    "graph, because a graph runs without the host: use offload::None");
  if (mark.lane_.get() == this || event.is_complete()) return 0;
  follower_.wait(event);
  store_value(follower_.native(), ordinal_, arrivals_, ++followed_);
  return followed_;
}

void CudaLink::mark(Event& event, std::uint64_t target) {
  auto& mark = static_cast<CudaEvent&>(event);
  mark.lane_ = shared_from_this();
  mark.lane_target_ = target;
  mark.capture_ = 0;
}

void CudaLink::poll(std::chrono::steady_clock::duration waited) {
  follower_.check();
  monitors_->poll(waited);
}

void CudaLink::expect_intact() const {
  if (monitors_->aborts() != aborts_before_) std::rethrow_exception(monitors_->abort_reason());
}

}  // namespace flatshard::detail
