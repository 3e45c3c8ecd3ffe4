#include "device_lane.hpp"

#include <utility>

namespace flatshard::detail {

DeviceLane::DeviceLane(std::shared_ptr<LaneLink> link)
    : link_(std::move(link)),
      marks_(link_->departures().load()),
      thread_([this](std::chrono::steady_clock::duration waited) { look_up(waited); }) {}

void DeviceLane::record(Event& event) {
  const std::uint64_t target = marks_ + 1;
  thread_.enqueue_always([this, target] {
    // Sequentially consistent: also what kernels wrote past the cache is there before the number.
    link_->departures().store(target, std::memory_order_seq_cst);
  });
  marks_ = target;  // once somebody will store it
  link_->mark(event, target);
}

void DeviceLane::wait(Event& event) {
  const std::uint64_t target = link_->follow(event);
  if (target > 0) thread_.enqueue_always([this, target] { await(target); });
}

void DeviceLane::await(std::uint64_t target) const {
  const auto arrived = [&] { return link_->arrivals().load() >= target; };
  wait_in_turns([&] { return arrived() || given_up_.load(); }, [](auto) {});
  if (!arrived()) std::rethrow_exception(failure_);
  link_->expect_intact();
}

void DeviceLane::look_up(std::chrono::steady_clock::duration waited) noexcept {
  if (given_up_.load()) return;
  try {
    link_->poll(waited);
  } catch (...) {
    failure_ = std::current_exception();
    given_up_.store(true);
  }
}

}  // namespace flatshard::detail
