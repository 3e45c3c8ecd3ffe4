// State of one run of a ThreadWorld that all its communicators share: the first failure, and who
// has left.
#pragma once

#include <flatshard/comm/threads.hpp>
#include <flatshard/core/error.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

namespace flatshard::detail {

class ThreadGroup;

/// Thread-safe.
class ThreadSession {
 public:
  ThreadSession(int size, const KernelTable& kernels, ThreadWorldOptions options);

  const KernelTable& kernels() const { return kernels_; }
  std::chrono::milliseconds patience() const { return options_.patience; }

  /// Keeps the first failure only; wakes all who wait.
  void fail(Rank rank, const std::string& message, std::exception_ptr cause = nullptr) noexcept;
  /// The same with the message (and for a CommunicationError the rank) of an exception.
  void fail(Rank rank, std::exception_ptr cause) noexcept;
  bool failed() const { return failed_.load(); }
  /// Only after failed(): throws the failure.
  [[noreturn]] void throw_failure() const;
  [[noreturn]] void throw_failure_with_cause() const;

  /// The rank's function has ended: it issues nothing any more.
  void end(Rank rank);
  bool ended(Rank rank) const { return ended_[static_cast<std::size_t>(rank)].load(); }
  /// A communicator was closed or a rank has ended, at least once.
  bool anyone_left() const { return anyone_left_.load(); }
  void someone_left();

  void add(ThreadGroup& group);
  void remove(ThreadGroup& group);

 private:
  void wake_all();

  const KernelTable& kernels_;
  ThreadWorldOptions options_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<bool> anyone_left_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::unique_ptr<const CommunicationError> failure_;
  std::exception_ptr cause_;
  std::vector<ThreadGroup*> groups_;
};

}  // namespace flatshard::detail
