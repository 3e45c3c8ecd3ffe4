// Failures of one rank that all come to know, and death.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "mpi_session.hpp"

namespace flatshard::detail {

namespace {

constexpr auto agreement = std::chrono::seconds(2);  // for rank 0 to say what was first
constexpr int signs_of_life = 20;                    // in the time of silence that is death

}  // namespace

void MpiSession::hear(const MpiRecord& record, Rank sender) noexcept {
  if ((sender + 1) % size_ == rank_) heard_ = MpiClock::now();
  if (record.rank < 0 || record.rank >= size_) return;
  switch (record.news) {
    case MpiNews::Alive:
      return;
    case MpiNews::Report:
      return settle_failure(record);
    case MpiNews::Verdict:
      return keep_failure(record);
    case MpiNews::Left:
      return set_departure({record.rank, record.group, record.number});
    case MpiNews::Ended:
      return note_end(record.rank);
    case MpiNews::Closed:
      return closed_.store(true);
    case MpiNews::Last:
      ++lasts_;
  }
}

/// Every rank hears the one before it, so that each is heard by one.
void MpiSession::watch_neighbour() noexcept {
  const MpiClock::time_point now = MpiClock::now();
  // A process that was stopped, perhaps with all the others, has not listened meanwhile.
  if (now - std::exchange(looked_, now) > options_.silence / 4) heard_ = now;
  if (now - spoken_ >= options_.silence / signs_of_life) {
    spoken_ = now;
    control_->send_alive((rank_ + 1) % size_);
  }
  if (failed() || now - heard_ <= options_.silence) return;
  const Rank before = (rank_ + size_ - 1) % size_;
  if (!silent_) {
    MpiRecord record;
    record.rank = before;
    record.is_dead = 1;
    record.set_text(fmt::format("its process ended, or was not heard of for {} ms by rank {}",
                                options_.silence.count(), rank_));
    silent_ = record;
    reported_ = now;
    record.news = MpiNews::Report;
    if (before != 0 && rank_ != 0) return control_->send(0, record);
  }
  if (before == 0 || rank_ == 0 || now - reported_ > agreement) settle_failure(*silent_);
}

/// With control_mutex_: by rank 0, or in its place.
void MpiSession::settle_failure(const MpiRecord& failure) noexcept {
  if (failed()) return;
  keep_failure(failure);
  MpiRecord verdict = failure;
  verdict.news = MpiNews::Verdict;
  tell_all(verdict);
}

void MpiSession::keep_failure(const MpiRecord& failure) noexcept {
  if (failure.is_dead != 0) {
    give_up_finalizing();
    is_zero_dead_ = is_zero_dead_ || failure.rank == 0;
    note_end(failure.rank);
  }
  const std::lock_guard lock(state_mutex_);
  if (failure_) return;
  failure_ = failure.failure();
  failed_.store(true);
}

void MpiSession::tell_all(MpiRecord record) noexcept {
  for (Rank other = 0; other < size_; ++other)
    if (other != rank_ && !(record.is_dead != 0 && other == record.rank))
      control_->send(other, record);
}

void MpiSession::fail(const Failure& failure) noexcept {
  if (failed() || given_up_.load()) return;
  MpiRecord record;
  record.rank = failure.rank;
  record.set_text(failure.message);
  if (size_ == 1) return keep_failure(record);
  {
    const std::lock_guard lock(control_mutex_);
    record.news = MpiNews::Report;
    if (rank_ == 0) return settle_failure(record);
    control_->send(0, record);
  }
  PollPause pause;
  while (!failed() && pause.waited() < agreement) {
    pause.rest();
    const std::unique_lock lock(control_mutex_, std::try_to_lock);
    if (lock.owns_lock()) service();
  }
  const std::lock_guard lock(control_mutex_);
  settle_failure(record);
}

void MpiSession::fail(std::exception_ptr cause) noexcept {
  if (failed()) return;
  {
    const std::lock_guard lock(state_mutex_);
    if (!cause_) cause_ = cause;
  }
  try {
    std::rethrow_exception(cause);
  } catch (const CommunicationError& error) {
    const std::string text = error.what();  // "rank r: message"
    fail(Failure{error.rank(), text.substr(text.find(": ") + 2)});
  } catch (const std::exception& error) {
    fail(Failure{rank_, error.what()});
  } catch (...) {
    fail(Failure{rank_, "an exception that is not a std::exception"});
  }
}

void MpiSession::give_up() noexcept {
  const std::lock_guard lock(control_mutex_);
  given_up_.store(true);
  give_up_finalizing();
}

void MpiSession::throw_failure() const {
  const std::lock_guard lock(state_mutex_);
  throw CommunicationError(failure_->rank, failure_->message, {__FILE__, __LINE__});
}

void MpiSession::throw_failure_with_cause() const {
  if (cause_ == nullptr) throw_failure();
  try {
    std::rethrow_exception(cause_);
  } catch (...) {
    std::throw_with_nested(CommunicationError(failure_->rank, failure_->message));
  }
}

void MpiSession::leave(int group, std::uint64_t calls, std::span<const Rank> listeners) noexcept {
  if (failed() || given_up_.load() || listeners.empty()) return;
  MpiRecord record;
  record.news = MpiNews::Left;
  record.rank = rank_;
  record.group = group;
  record.number = calls;
  const std::lock_guard lock(control_mutex_);
  for (const Rank listener : listeners)
    if (listener != rank_) control_->send(listener, record);
}

void MpiSession::set_departure(const Departure& departure) noexcept {
  try {
    const std::lock_guard lock(state_mutex_);
    departures_.push_back(departure);
  } catch (const std::bad_alloc&) {
    return;  // then patience ends the wait
  }
}

std::optional<std::uint64_t> MpiSession::calls_of(Rank rank, int group) const {
  const std::lock_guard lock(state_mutex_);
  for (const Departure& departure : departures_)
    if (departure.rank == rank && departure.group == group) return departure.calls;
  return {};
}

/// With control_mutex_. Rank 0 knows when all have ended.
void MpiSession::note_end(Rank rank) noexcept {
  if (rank_ != 0) return;
  ended_[static_cast<std::size_t>(rank)] = true;
  if (std::find(ended_.begin(), ended_.end(), false) != ended_.end()) return;
  MpiRecord record;
  record.news = MpiNews::Closed;
  tell_all(record);
  closed_.store(true);
}

}  // namespace flatshard::detail
