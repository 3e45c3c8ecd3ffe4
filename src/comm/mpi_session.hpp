// What the communicators of one rank's process share: MPI's communicators, the first failure, and
// the thread that hears the others.
#pragma once

#include <flatshard/comm/mpi.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/core/parking.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "mpi_control.hpp"

namespace flatshard::detail {

using MpiClock = std::chrono::steady_clock;

/// Throws UsageError for options that cannot be.
void validate(const MpiOptions& options);

/// Rests of a thread that polls: it yields first, then sleeps, longer and longer.
class PollPause {
 public:
  void rest();
  MpiClock::duration waited() const { return MpiClock::now() - start_; }

 private:
  MpiClock::time_point start_ = MpiClock::now();
  int turns_ = 0;
};

/// The failure that counts is the first that rank 0 came to know; every rank throws that one. A
/// rank whose rank 0 does not answer decides by itself, and tells all. Thread-safe.
class MpiSession {
 public:
  /// Duplicates `parent` twice. Collective.
  MpiSession(MPI_Comm parent, const MpiOptions& options);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm data() const { return data_; }
  const MpiOptions& options() const { return options_; }
  const KernelTable& kernels() const { return *kernels_; }

  bool failed() const { return failed_.load(); }
  /// Only after failed().
  [[noreturn]] void throw_failure() const;
  /// The same, with this rank's own exception nested in it if there was one.
  [[noreturn]] void throw_failure_with_cause() const;
  /// Hears the others, unless another thread does just now; throws the failure.
  void poll();
  /// Tells every rank. Blocks until rank 0 has said which failure was the first, two seconds at
  /// most.
  void fail(const Failure& failure) noexcept;
  /// The same with the message (and for a CommunicationError the rank) of an exception.
  void fail(std::exception_ptr cause) noexcept;
  /// No MPI in this session any more: a message into the caller's memory could still arrive.
  void give_up() noexcept;

  /// Numbers of groups: every member of a new group proposes the first that it has not used; the
  /// largest is taken, and no member uses one below `next` afterwards.
  int proposed_group() const { return next_group_.load(); }
  void take_groups(int next) { next_group_.store(next); }

  /// This rank issues no more than `calls` calls in a group whose other members `listeners` are.
  void leave(int group, std::uint64_t calls, std::span<const Rank> listeners) noexcept;
  /// How many calls a rank issues in a group, once it has left it.
  std::optional<std::uint64_t> calls_of(Rank rank, int group) const;

  /// Blocks until every rank has closed; after a failure three seconds at most.
  void close() noexcept;

 private:
  struct Departure {
    Rank rank;
    int group;
    std::uint64_t calls;
  };

  void listen();
  void service() noexcept;
  void hear(const MpiRecord& record, Rank sender) noexcept;
  void watch_neighbour() noexcept;
  void settle_failure(const MpiRecord& failure) noexcept;
  void keep_failure(const MpiRecord& failure) noexcept;
  void tell_all(MpiRecord record) noexcept;
  void note_end(Rank rank) noexcept;
  bool closes_when(bool (MpiSession::*is_over)() const) noexcept;
  bool all_ended() const { return closed_.load(); }
  bool all_silent() const { return lasts_ == size_ - 1; }
  void set_departure(const Departure& departure) noexcept;

  MpiOptions options_;
  std::unique_ptr<const KernelTable> kernels_;
  Rank rank_ = 0;
  int size_ = 1;
  MPI_Comm data_ = MPI_COMM_NULL;
  std::atomic<bool> failed_{false}, closed_{false}, given_up_{false}, is_clean_{false};
  std::atomic<int> next_group_{1};  // 0: the world

  std::mutex control_mutex_;  // guards these
  std::unique_ptr<MpiControl> control_;
  MpiClock::time_point heard_;       // of the neighbour: last
  MpiClock::time_point looked_;      // at the news: last
  MpiClock::time_point spoken_;      // to the other neighbour: last
  std::optional<MpiRecord> silent_;  // the neighbour's death, reported, and when:
  MpiClock::time_point reported_;
  std::vector<bool> ended_;  // on rank 0, by rank
  int lasts_ = 0;            // ranks that send nothing any more
  bool is_zero_dead_ = false;

  mutable std::mutex state_mutex_;  // guards these
  std::optional<Failure> failure_;
  std::exception_ptr cause_;
  std::vector<Departure> departures_;

  std::mutex sleep_mutex_;  // of the thread
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread listener_;
};

}  // namespace flatshard::detail
