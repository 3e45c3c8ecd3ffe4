// How host threads wait for each other: a spin, then sleep until someone says that the state
// has changed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace flatshard::detail {

/// A place where threads wait for a condition. The condition's state must be atomics that are read
/// and written with sequential consistency; whoever changes it calls notify() afterwards. Then no
/// wake-up is lost, and notify() costs one load while nobody sleeps.
class Parking {
 public:
  using Duration = std::chrono::steady_clock::duration;

  /// Blocks until ready() is true; ready() may be called many times and must not throw. Spins for
  /// `spinning` first, and lets other threads run meanwhile: for what is expected sooner than a
  /// thread is woken.
  template <class Condition>
  void wait(Condition ready, Duration spinning = {}) {
    if (spin(ready, spinning)) return;
    Sleeper sleeper(sleepers_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, ready);
  }

  /// As wait, but gives up after `limit`; returns whether ready() became true.
  template <class Condition>
  bool wait_for(Duration limit, Condition ready) {
    if (spin(ready, {})) return true;
    Sleeper sleeper(sleepers_);
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, ready);
  }

  void notify() noexcept {
    if (sleepers_.load() == 0) return;
    { std::lock_guard lock(mutex_); }  // a sleeper is before its check or already asleep
    changed_.notify_all();
  }

 private:
  struct Sleeper {
    explicit Sleeper(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
    ~Sleeper() { count_.fetch_sub(1); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    std::atomic<int>& count_;
  };

  // Few turns unless asked for: threads may outnumber cores, and then whoever spins is in the way.
  template <class Condition>
  static bool spin(Condition& ready, Duration limit) {
    if (ready()) return true;
    const auto start = std::chrono::steady_clock::now();
    do {
      for (int turn = 0; turn < 4; ++turn) {
        if (ready()) return true;
        std::this_thread::yield();
      }
    } while (std::chrono::steady_clock::now() - start < limit);
    return ready();
  }

  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace flatshard::detail
