#include "threaded_stream.hpp"

#include <flatshard/core/error.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace flatshard::detail {

ThreadedStream::ThreadedStream() {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("host stream: cannot start its thread: ") + error.what(),
                {__FILE__, __LINE__});
  }
}

ThreadedStream::~ThreadedStream() {
  push({}, true);
  thread_.join();
}

void ThreadedStream::enqueue(Task task) {
  FLATSHARD_EXPECTS(task, "host stream: an empty task was enqueued");
  if (failed_.load()) {
    done_->wait(issued_.count());
    skip(task, error_);
    rethrow_error();
  }
  push(std::move(task), false);
}

void ThreadedStream::record(Event& event) { host_event(event).set({done_, issued_.count()}); }

void ThreadedStream::wait(Event& event) {
  Mark mark = host_event(event).latest();
  if (mark.is_complete() || mark.done == done_) return;  // done, or earlier in this very queue
  push([mark = std::move(mark)] { mark.wait(); }, true);
}

void ThreadedStream::check() {
  if (failed_.load()) synchronize();  // what was issued since is being skipped
}

void ThreadedStream::synchronize() {
  done_->wait(issued_.count());
  if (failed_.load()) rethrow_error();
}

void ThreadedStream::push(Task task, bool always) {
  const std::uint64_t index = issued_.count();
  if (index >= slots) done_->wait(index - slots + 1);
  Entry& entry = ring_[index % slots];
  entry.task = std::move(task);
  entry.always = always;
  issued_.advance();
}

void ThreadedStream::work() {
  for (std::uint64_t index = 0;; ++index) {
    issued_.wait(index + 1);
    Entry& entry = ring_[index % slots];
    if (!entry.task) return;
    execute(entry);
    done_->advance();
  }
}

void ThreadedStream::execute(Entry& entry) {
  if (failed_.load() && !entry.always) return skip(entry.task, error_);
  std::exception_ptr error;
  try {
    entry.task();
  } catch (...) {
    error = std::current_exception();
  }
  entry.task = Task{};
  if (error == nullptr) return;
  error_ = std::move(error);
  failed_.store(true);
}

void ThreadedStream::rethrow_error() {
  failed_.store(false);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace flatshard::detail
