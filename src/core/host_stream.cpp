#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>

#include <utility>

#include "host_event.hpp"
#include "threaded_stream.hpp"

namespace flatshard {
namespace {

thread_local const std::exception_ptr* current_skip_reason = nullptr;

}  // namespace

std::exception_ptr HostStream::skip_reason() noexcept {
  return current_skip_reason != nullptr ? *current_skip_reason : nullptr;
}

void HostStream::skip(Task& task, const std::exception_ptr& reason) noexcept {
  const auto* outer = std::exchange(current_skip_reason, &reason);
  task = Task{};
  current_skip_reason = outer;
}

void InlineStream::enqueue(Task task) {
  FLATSHARD_EXPECTS(task, "host stream: an empty task was enqueued");
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) {
    skip(task, error);
    std::rethrow_exception(error);
  }
  try {
    task();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void InlineStream::record(Event& event) { detail::host_event(event).set({}); }

void InlineStream::wait(Event& event) { event.synchronize(); }

void InlineStream::check() { synchronize(); }

void InlineStream::synchronize() {
  if (const std::exception_ptr error = std::exchange(error_, nullptr))
    std::rethrow_exception(error);
}

std::unique_ptr<HostStream> make_host_stream(StreamForm form) {
  if (form == StreamForm::Inline) return std::make_unique<InlineStream>();
  return std::make_unique<detail::ThreadedStream>();
}

std::unique_ptr<Event> make_host_event() { return std::make_unique<detail::HostEvent>(); }

}  // namespace flatshard
