// What ties a CUDA device's streams to the lane of its host.
#pragma once

#include "cuda_stream.hpp"
#include "cuda_values.hpp"
#include "device_lane.hpp"

namespace flatshard::detail {

/// Two pinned numbers and a stream. The stream waits for each event that the lane waits for, in
/// turn, and then stores how many those were: so a wait is for the record that was the latest when
/// it was issued, whatever becomes of the event before the lane comes there. Streams wait for the
/// lane's number. All that a number depends on was issued before who waits for it, so streams that
/// share one of the device's queues wait longer at worst.
class CudaLink final : public LaneLink, public std::enable_shared_from_this<CudaLink> {
 public:
  CudaLink(int ordinal, int priority, PinnedCounters& counters,
           std::shared_ptr<const DeviceMonitors> monitors);
  ~CudaLink() override;

  std::uint64_t follow(Event& event) override;
  void mark(Event& event, std::uint64_t target) override;
  void poll(std::chrono::steady_clock::duration waited) override;
  void expect_intact() const override;
  const std::atomic<std::uint64_t>& arrivals() const override { return *arrivals_.value; }
  std::atomic<std::uint64_t>& departures() override { return *departures_.value; }

  bool has_departed(std::uint64_t target) const { return departures_.value->load() >= target; }
  /// Work that `stream` is given later starts once the lane's number is at least `target`.
  void hold_back(cudaStream_t stream, std::uint64_t target) const {
    wait_for_value(stream, ordinal_, departures_, target);
  }

 private:
  int ordinal_;
  PinnedCounters& counters_;
  std::shared_ptr<const DeviceMonitors> monitors_;
  CudaStream follower_;
  PinnedCounter arrivals_, departures_;
  std::uint64_t followed_;
  std::uint64_t aborts_before_;
};

}  // namespace flatshard::detail
