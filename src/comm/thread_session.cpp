#include "thread_session.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "thread_group.hpp"

namespace flatshard::detail {
namespace {

// The message behind "rank r: ".
std::string message_of(const CommunicationError& error) {
  const std::string text = error.what();
  return text.substr(text.find(": ") + 2);
}

}  // namespace

ThreadSession::ThreadSession(int size, const KernelTable& kernels, ThreadWorldOptions options)
    : kernels_(kernels), options_(options), ended_(static_cast<std::size_t>(size)) {}

void ThreadSession::fail(Rank rank, const std::string& message, std::exception_ptr cause) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    failure_ = std::make_unique<const CommunicationError>(rank, message);
    cause_ = std::move(cause);
    failed_.store(true);
  }
  wake_all();
}

void ThreadSession::fail(Rank rank, std::exception_ptr cause) noexcept {
  try {
    std::rethrow_exception(cause);
  } catch (const CommunicationError& error) {
    fail(error.rank(), message_of(error), cause);
  } catch (const std::exception& error) {
    fail(rank, error.what(), cause);
  } catch (...) {
    fail(rank, "an exception that is not a std::exception", cause);
  }
}

void ThreadSession::throw_failure() const {
  std::lock_guard lock(mutex_);
  throw CommunicationError(*failure_);
}

void ThreadSession::throw_failure_with_cause() const {
  if (cause_ == nullptr) throw_failure();
  try {
    std::rethrow_exception(cause_);
  } catch (...) {
    std::throw_with_nested(CommunicationError(*failure_));
  }
}

void ThreadSession::end(Rank rank) {
  ended_[static_cast<std::size_t>(rank)].store(true);
  someone_left();
}

void ThreadSession::someone_left() {
  anyone_left_.store(true);
  wake_all();
}

void ThreadSession::add(ThreadGroup& group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(&group);
}

void ThreadSession::remove(ThreadGroup& group) {
  std::lock_guard lock(mutex_);
  std::erase(groups_, &group);
}

void ThreadSession::wake_all() {
  std::lock_guard lock(mutex_);
  for (ThreadGroup* group : groups_) group->wake_all();
}

}  // namespace flatshard::detail
