// Remembers the order of calls of the last micro-step and foretells what comes next.
#pragma once

#include <flatshard/sharder/engine.hpp>

#include <cstddef>
#include <vector>

namespace flatshard::detail {

struct Call {
  Phase phase;
  int module;
  friend bool operator==(const Call&, const Call&) = default;
};

/// Before anything was recorded: modules in order forward, in reverse backward. A wrong guess only
/// costs the prefetch. A function of the calls alone, so equal on all ranks that call alike.
class CallOrder {
 public:
  explicit CallOrder(int modules) {
    for (int module = 0; module < modules; ++module) expected_.push_back({Phase::Forward, module});
    for (int module = modules; module-- > 0;) expected_.push_back({Phase::Backward, module});
  }

  /// A new micro-step begins.
  void restart() {
    if (!recorded_.empty()) std::swap(expected_, recorded_);
    recorded_.clear();
    next_ = 0;
  }
  void record(const Call& call) {
    recorded_.push_back(call);
    for (std::size_t index = next_; index < expected_.size(); ++index)
      if (expected_[index] == call) {
        next_ = index + 1;
        return;
      }
  }
  /// Of the last recorded call.
  Phase phase() const { return recorded_.empty() ? Phase::Forward : recorded_.back().phase; }
  /// Calls expected after the last recorded one, nearest first.
  std::size_t upcoming() const { return expected_.size() - next_; }
  const Call& upcoming(std::size_t index) const { return expected_[next_ + index]; }

 private:
  std::vector<Call> expected_;
  std::vector<Call> recorded_;
  std::size_t next_ = 0;
};

}  // namespace flatshard::detail
