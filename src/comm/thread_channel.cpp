#include "thread_channel.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

namespace flatshard::detail {

ThreadChannels::ThreadChannels(int size, std::chrono::milliseconds patience)
    : size_(size), patience_(patience), left_(static_cast<std::size_t>(size)) {}

void ThreadChannels::all_gather(Rank rank, std::span<const std::byte> mine,
                                std::span<std::byte> all) {
  std::unique_lock lock(mutex_);
  const auto expect_sound = [this] {
    if (failure_) throw CommunicationError(failure_->rank, failure_->message);
  };
  expect_sound();
  const std::uint64_t round = round_;
  gathering_.resize(all.size());
  std::copy(mine.begin(), mine.end(),
            gathering_.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank);
  if (++arrived_ == size_) {
    gathered_ = gathering_;
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    const bool came =
        changed_.wait_for(lock, patience_, [&] { return round_ != round || failure_; });
    if (!came)
      failure_ = Failure{rank, fmt::format("waited {} ms for the other ranks", patience_.count())};
    if (round_ == round) expect_sound();
  }
  std::copy(gathered_.begin(), gathered_.end(), all.begin());
}

void ThreadChannels::fail(const Failure& failure, std::exception_ptr cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    cause_ = std::move(cause);
  }
  changed_.notify_all();
}

void ThreadChannels::fail(Rank rank, std::exception_ptr cause) noexcept {
  try {
    std::rethrow_exception(cause);
  } catch (const CommunicationError& error) {
    const std::string text = error.what();  // "rank r: message"
    fail(Failure{error.rank(), text.substr(text.find(": ") + 2)}, cause);
  } catch (const std::exception& error) {
    fail(Failure{rank, error.what()}, cause);
  } catch (...) {
    fail(Failure{rank, "an exception that is not a std::exception"}, cause);
  }
}

std::optional<Failure> ThreadChannels::failure() const noexcept {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ThreadChannels::leave(Rank rank) noexcept {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
}

bool ThreadChannels::has_left(Rank rank) const noexcept {
  const std::lock_guard lock(mutex_);
  return left_[static_cast<std::size_t>(rank)];
}

void ThreadChannels::rethrow() const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return;
  const CommunicationError failure(failure_->rank, failure_->message);
  if (cause_ == nullptr) throw failure;
  try {
    std::rethrow_exception(cause_);
  } catch (...) {
    std::throw_with_nested(failure);
  }
}

}  // namespace flatshard::detail
