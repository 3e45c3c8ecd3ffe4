// Host streams in two forms: inline (work runs in the issuing thread, at once) and threaded (own
// queue and thread). Both leave the same bits; the threaded one proves that the seams are right.
#pragma once

#include <flatshard/core/stream.hpp>
#include <flatshard/core/task.hpp>

#include <exception>
#include <memory>

namespace flatshard {

/// Inline: work runs in the issuing thread. Threaded: in a queue with a thread of its own.
enum class StreamForm { Inline, Threaded };

/// A stream that runs host tasks in order; both forms behave alike.
///
/// Errors: after a task throws, everything issued before the error is reported is skipped: tasks
/// are destroyed unrun, while records still complete and waits still order, so nobody hangs. The
/// next enqueue or synchronize waits for that to end and rethrows the error, once; the task given
/// to that enqueue is not run either. From then on the stream works as before. Errors do not travel
/// over events. The destructor runs what was issued, never throws, and drops an error that nobody
/// asked for.
class HostStream : public Stream {
 public:
  /// Runs `task` after everything issued before it. A task holds its captures in place, see
  /// Task::capacity; a threaded stream's queue grows. When it is full, enqueue blocks until it is
  /// empty and doubles it (up to 65536 tasks, 18 MB), which may throw std::bad_alloc; at that size
  /// it blocks until there is room. Otherwise it blocks only to report an error, see above.
  virtual void enqueue(Task task) = 0;

  /// While a host stream destroys a task unrun: the error because of which it does so. Otherwise
  /// null. For callables whose peers wait for them: their destructor can pass the reason on.
  static std::exception_ptr skip_reason() noexcept;

 protected:
  /// Destroys `task` unrun; skip_reason() is `reason` meanwhile.
  static void skip(Task& task, const std::exception_ptr& reason) noexcept;
};

/// Runs each task in the issuing thread, at once. Needs no allocation: may live on the stack.
class InlineStream final : public HostStream {
 public:
  void enqueue(Task task) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void check() override;
  void synchronize() override;

 private:
  std::exception_ptr error_;
};

/// The host stream behind `stream`; the caller knows that it is one.
inline HostStream& host_stream(StreamRef stream) { return static_cast<HostStream&>(stream.get()); }

/// Throws Error when a threaded stream cannot start its thread.
std::unique_ptr<HostStream> make_host_stream(StreamForm form);
/// For host streams of both forms; may outlive them.
std::unique_ptr<Event> make_host_event();

}  // namespace flatshard
