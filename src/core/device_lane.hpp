// The host's stream beside a device: a thread that works in host memory, in step with the device's
// streams. What ties it to a device is behind a link, so that it is tested without one.
#pragma once

#include <flatshard/core/host_stream.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

#include "threaded_stream.hpp"

namespace flatshard::detail {

/// Blocks until ready() is true. Spins for what takes microseconds, then sleeps: other threads of
/// the process have work for the core. `between(waited)` is called before each sleep.
template <class Ready, class Between>
void wait_in_turns(Ready ready, Between between) {
  constexpr int spins = 200;
  constexpr auto nap = std::chrono::microseconds(30);
  for (int turn = 0; turn < spins; ++turn) {
    if (ready()) return;
    std::this_thread::yield();
  }
  const auto start = std::chrono::steady_clock::now();
  while (!ready()) {
    between(std::chrono::steady_clock::now() - start);
    std::this_thread::sleep_for(nap);
  }
}

/// Two numbers that only grow, in memory that host and device see: how far the device has come, and
/// how far the lane. The lane's thread makes no call of the device's driver, which might wait for
/// something that waits for the lane.
class LaneLink {
 public:
  virtual ~LaneLink() = default;
  /// Once the event's latest record so far is complete, arrivals() reaches the number returned; 0:
  /// it is complete, or the lane's own.
  virtual std::uint64_t follow(Event& event) = 0;
  /// From now on the event is complete once departures() has reached `target`.
  virtual void mark(Event& event, std::uint64_t target) = 0;
  /// Throws when what the device was given has failed or will not end; `waited` is how long the
  /// issuing thread has waited.
  virtual void poll(std::chrono::steady_clock::duration waited) = 0;
  /// By the lane's thread, once arrivals() has reached what it waited for: throws when that may be
  /// because the work before was aborted.
  virtual void expect_intact() const = 0;
  virtual const std::atomic<std::uint64_t>& arrivals() const = 0;  // the device stores
  virtual std::atomic<std::uint64_t>& departures() = 0;            // the lane stores
};

/// Errors of tasks are a HostStream's; records are complete all the same. When the device fails,
/// whoever waits for the lane notices, and the lane ends its waits with that error.
class DeviceLane final : public HostStream {
 public:
  explicit DeviceLane(std::shared_ptr<LaneLink> link);

  void enqueue(Task task) override { thread_.enqueue(std::move(task)); }
  void record(Event& event) override;
  void wait(Event& event) override;
  void check() override { thread_.check(); }
  void synchronize() override { thread_.synchronize(); }

 private:
  void look_up(std::chrono::steady_clock::duration waited) noexcept;
  void await(std::uint64_t target) const;

  std::shared_ptr<LaneLink> link_;
  std::uint64_t marks_;                 // records issued, counted on from an earlier lane's
  std::exception_ptr failure_;          // of the device; written before given_up_
  std::atomic<bool> given_up_ = false;  // the device stores no more arrivals
  ThreadedStream thread_;               // last: its thread uses the rest
};

}  // namespace flatshard::detail
