// What host streams and host events share: how far a stream has come.
#pragma once

#include <flatshard/core/parking.hpp>
#include <flatshard/core/stream.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

namespace flatshard::detail {

/// Number of entries of a queue that are done (or issued): only grows, and can be waited for.
class Progress {
 public:
  std::uint64_t count() const { return count_.load(); }
  bool reached(std::uint64_t target) const { return count() >= target; }
  void advance() {
    count_.fetch_add(1);
    parking_.notify();
  }
  void wait(std::uint64_t target) {
    parking_.wait([&] { return reached(target); });
  }
  /// As wait, but gives up after `limit`; returns whether the target was reached.
  bool wait_for(std::uint64_t target, std::chrono::steady_clock::duration limit) {
    return parking_.wait_for(limit, [&] { return reached(target); });
  }

 private:
  std::atomic<std::uint64_t> count_{0};
  Parking parking_;
};

/// A place in a stream: complete once `done` of that stream has reached `target`.
struct Mark {
  std::shared_ptr<Progress> done;  // null: complete
  std::uint64_t target = 0;

  bool is_complete() const { return done == nullptr || done->reached(target); }
  void wait() const {
    if (done != nullptr) done->wait(target);
  }
};

/// Holds the latest mark. A wait takes a copy, so a later record elsewhere cannot move it.
class HostEvent final : public Event {
 public:
  void synchronize() override { latest().wait(); }
  bool is_complete() const override { return latest().is_complete(); }

  Mark latest() const {
    std::lock_guard lock(mutex_);
    return mark_;
  }
  void set(Mark mark) {
    std::lock_guard lock(mutex_);
    mark_ = std::move(mark);
  }

 private:
  mutable std::mutex mutex_;
  Mark mark_;
};

/// The host event behind `event`; the caller knows that it is one.
inline HostEvent& host_event(Event& event) { return static_cast<HostEvent&>(event); }

}  // namespace flatshard::detail
