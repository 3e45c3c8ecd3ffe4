// Streams and events: who may run when. A stream is an ordered queue of work; an event marks a
// place in it. The same two classes serve host threads and CUDA; only kernels know which.
#pragma once

#include <cstddef>
#include <memory>

namespace flatshard {

/// A mark in a stream, as a CUDA event: Stream::record sets it, Stream::wait waits for the latest
/// record made before the wait was issued. An event that was never recorded is complete.
/// Thread-safety: one thread issues; any thread may wait.
class Event {
 public:
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// Blocks the calling host thread until the latest record is complete.
  virtual void synchronize() = 0;
  /// True once the latest record is complete; never blocks.
  virtual bool is_complete() const = 0;

 protected:
  Event() = default;
};

/// An ordered queue of work. Nothing here blocks the host but synchronize() (and, for an inline
/// host stream, the work itself; for a threaded one, a full queue). Thread-safety: one thread
/// issues work at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Marks the end of all work issued so far.
  virtual void record(Event& event) = 0;
  /// Work issued later starts only after the event's latest record.
  virtual void wait(Event& event) = 0;
  /// Rethrows the first error of work that has already failed; does not wait for work to be done.
  virtual void check() = 0;
  /// Blocks the calling host thread until all work is done; rethrows the first error of that work.
  virtual void synchronize() = 0;

 protected:
  Stream() = default;
};

/// Non-owning, trivially copyable reference to a stream. There is no default stream: a ref cannot
/// be made from nothing.
class StreamRef {
 public:
  /// `stream` must outlive the reference.
  StreamRef(Stream& stream) : stream_(&stream) {}  // NOLINT: implicit by design
  StreamRef(std::nullptr_t) = delete;
  StreamRef(int) = delete;
  Stream& get() const { return *stream_; }        // the stream
  Stream* operator->() const { return stream_; }  // its members

 private:
  Stream* stream_;
};

}  // namespace flatshard
