// Queues of streams, and how far they have come.
#include <atomic>
#include <chrono>
#include <thread>

#include "stream.hpp"

namespace emulated {

std::uint64_t Progress::issue() {
  const std::lock_guard lock(mutex_);
  return ++issued_;
}

std::uint64_t Progress::issued() const {
  const std::lock_guard lock(mutex_);
  return issued_;
}

bool Progress::reached(std::uint64_t target) const {
  const std::lock_guard lock(mutex_);
  return done_ >= target;
}

void Progress::wait(std::uint64_t target) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= target; });
}

void Progress::advance() {
  const std::lock_guard lock(mutex_);
  ++done_;
  changed_.notify_all();
}

Queue::Queue() : state_(make_shared<State>()) {
  static std::atomic<unsigned> queues{0};
  static const auto seed = static_cast<unsigned>(setting("FLATSHARD_EMULATED_DELAYS", 0));
  state_->random.seed(seed == 0 ? 0 : seed + ++queues);
  std::thread([state = state_] { serve(state); }).detach();
}

Queue::~Queue() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void Queue::push(Work work, std::shared_ptr<Progress> progress) {
  const std::lock_guard lock(state_->mutex);
  progress->issue();
  state_->entries.push_back({std::move(work), std::move(progress)});
  state_->changed.notify_all();
}

void Queue::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->closed || !state->entries.empty(); });
    if (state->entries.empty()) return;
    const Entry entry = std::move(state->entries.front());
    state->entries.pop_front();
    lock.unlock();
    delay(*state);
    entry.work.run();
    entry.progress->advance();
    lock.lock();
  }
}

/// Of an eighth of the work, by up to 0.2 ms; of some, by up to 2 ms.
void Queue::delay(State& state) {
  static const bool delays = setting("FLATSHARD_EMULATED_DELAYS", 0) != 0;
  if (!delays || state.random() % 8 != 0) return;
  const auto most = state.random() % 16 == 0 ? 2000U : 200U;
  std::this_thread::sleep_for(std::chrono::microseconds(state.random() % most));
}

}  // namespace emulated
