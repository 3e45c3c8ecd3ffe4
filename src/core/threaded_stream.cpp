#include "threaded_stream.hpp"

#include <flatshard/core/error.hpp>

#include <chrono>
#include <string>
#include <system_error>
#include <utility>

namespace flatshard::detail {

namespace {

constexpr auto look_up_every = std::chrono::milliseconds(5);

}  // namespace

ThreadedStream::ThreadedStream(WhileWaiting while_waiting)
    : while_waiting_(std::move(while_waiting)) {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("host stream: cannot start its thread: ") + error.what(),
                {__FILE__, __LINE__});
  }
}

ThreadedStream::~ThreadedStream() {
  if (is_full()) wait_until_done(issued_.count());
  push({}, true);
  if (while_waiting_) wait_until_done(issued_.count() - 1);
  thread_.join();
}

void ThreadedStream::enqueue(Task task) {
  FLATSHARD_EXPECTS(task, "host stream: an empty task was enqueued");
  if (failed_.load()) {
    wait_until_done(issued_.count());
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
  wait_until_done(issued_.count());
  if (failed_.load()) rethrow_error();
}

void ThreadedStream::push(Task task, bool always) {
  if (is_full()) make_room();
  Entry& next = entry(issued_.count());
  next.task = std::move(task);
  next.always = always;
  issued_.advance();
}

/// The worker looks at the ring again only after the next entry is issued.
void ThreadedStream::make_room() {
  const std::uint64_t issued = issued_.count();
  if (ring_.size() >= most_slots) return wait_until_done(issued - ring_.size() + 1);
  wait_until_done(issued);
  ring_ = std::vector<Entry>(2 * ring_.size());
}

void ThreadedStream::wait_until_done(std::uint64_t target) {
  if (!while_waiting_) return done_->wait(target);
  const auto start = std::chrono::steady_clock::now();
  while (!done_->wait_for(target, look_up_every))
    while_waiting_(std::chrono::steady_clock::now() - start);
}

void ThreadedStream::work() {
  for (std::uint64_t index = 0;; ++index) {
    issued_.wait(index + 1);
    Entry& next = entry(index);
    if (!next.task) return;
    execute(next);
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
  if (error == nullptr || failed_.load()) return;  // the first error is what is reported
  error_ = std::move(error);
  failed_.store(true);
}

void ThreadedStream::rethrow_error() {
  failed_.store(false);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace flatshard::detail
