// Host streams in two forms: inline (work runs in the issuing thread, at once) and threaded (own
// queue and thread). Both leave the same bits; the threaded one proves that the seams are right.
#pragma once

#include <flatshard/core/stream.hpp>
#include <flatshard/core/task.hpp>

#include <memory>

namespace flatshard {

enum class StreamForm { Inline, Threaded };

/// A stream that runs host tasks in order. After a task throws, later tasks are not run (events
/// still complete, so nobody hangs) and the error is rethrown by the next enqueue or synchronize.
class HostStream : public Stream {
 public:
  /// Runs `task` after everything issued before it. Blocks only while the queue is full.
  /// Allocates nothing: a task holds its captures in place (see Task::capacity).
  virtual void enqueue(Task task) = 0;
};

/// The host stream behind `stream`; the caller knows that it is one.
inline HostStream& host_stream(StreamRef stream) { return static_cast<HostStream&>(stream.get()); }

std::unique_ptr<HostStream> make_host_stream(StreamForm form);
std::unique_ptr<Event> make_host_event();

}  // namespace flatshard
