// The threaded form of a host stream.
#pragma once

#include <flatshard/core/host_stream.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "host_event.hpp"

namespace flatshard::detail {

/// Called by the thread that waits for the worker, now and then; `waited` is how long it has. It
/// must not throw.
using WhileWaiting = std::function<void(std::chrono::steady_clock::duration waited)>;

/// One issuing thread, one worker, a ring of task slots between them. Entry n lies in slot
/// n % slots; it is issued when issued_ > n and done, its slot free, when done_ > n. A ring that is
/// full is emptied and doubled: from the first steps on it holds what a step issues ahead.
class ThreadedStream final : public HostStream {
 public:
  explicit ThreadedStream(WhileWaiting while_waiting = {});
  ~ThreadedStream() override;
  void enqueue(Task task) override;
  /// As enqueue, but the task runs whatever failed before it, and an earlier error is not reported.
  void enqueue_always(Task task) { push(std::move(task), true); }
  void record(Event& event) override;
  void wait(Event& event) override;
  void check() override;
  void synchronize() override;

 private:
  static constexpr std::size_t first_slots = 256;              // 70 KiB
  static constexpr std::size_t most_slots = first_slots << 8;  // 18 MB; then issuing waits

  struct Entry {
    Task task;            // empty: the worker ends
    bool always = false;  // runs whatever failed before it: waits, and the end
  };

  Entry& entry(std::uint64_t index) { return ring_[index % ring_.size()]; }
  bool is_full() const { return issued_.count() >= done_->count() + ring_.size(); }
  void make_room();
  void push(Task task, bool always);
  void wait_until_done(std::uint64_t target);
  void work();
  void execute(Entry& entry);
  void rethrow_error();

  WhileWaiting while_waiting_;
  std::vector<Entry> ring_{first_slots};
  Progress issued_;
  std::shared_ptr<Progress> done_ = std::make_shared<Progress>();
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // the worker's; the issuing thread's once failed_ and all is done

  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace flatshard::detail
