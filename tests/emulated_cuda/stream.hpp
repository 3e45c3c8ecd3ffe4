// Streams: work in order, in another thread than the caller's.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>

#include "work.hpp"

namespace emulated {

/// How far a stream has come; outlives its handle.
class Progress {
 public:
  explicit Progress(int of_device) : device(of_device) {}
  std::uint64_t issue();  // the number of the work that is enqueued now, from 1 on
  std::uint64_t issued() const;
  bool reached(std::uint64_t target) const;
  void wait(std::uint64_t target);
  void advance();

  const int device;

 private:
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::uint64_t issued_ = 0, done_ = 0;
};

/// A place in a stream; complete where there is none.
struct Mark {
  std::shared_ptr<Progress> stream;
  std::uint64_t target = 0;
  bool is_complete() const { return stream == nullptr || stream->reached(target); }
  void wait() const {
    if (stream != nullptr) stream->wait(target);
  }
};

/// Runs work in the order in which it came, in a thread of its own, which ends after the last of
/// it.
class Queue {
 public:
  Queue();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  void push(Work work, std::shared_ptr<Progress> progress);

 private:
  struct Entry {
    Work work;
    std::shared_ptr<Progress> progress;
  };
  struct State {
    std::mutex mutex;  // guards the rest
    std::condition_variable changed;
    std::deque<Entry, Malloc<Entry>> entries;
    bool closed = false;
    std::minstd_rand random;
  };
  static void serve(const std::shared_ptr<State>& state);
  static void delay(State& state);

  std::shared_ptr<State> state_;
};

struct Capture;

}  // namespace emulated

struct CUstream_st {
  CUstream_st(int device, std::shared_ptr<emulated::Queue> of_queue);
  ~CUstream_st();

  std::shared_ptr<emulated::Progress> progress;
  std::shared_ptr<emulated::Queue> queue;
  std::shared_ptr<emulated::Capture> capture;  // that it was in last; null: none
};

namespace emulated {

/// The stream behind a handle; of the null and the legacy stream: the current device's own.
CUstream_st& stream_of(cudaStream_t handle);
/// Goes to the stream, or to the graph that it is being captured into.
void enqueue(CUstream_st& stream, Work work);
/// The same as a kernel: an error, for cudaGetLastError, where the stream's device is not current.
void launch(cudaStream_t stream, Work work);
/// All that was issued so far to the streams of a device; -1: of all devices.
void wait_for_device(int device);

/// A number from the environment.
long setting(const char* name, long otherwise);
int device_count();
int current_device();
/// Keeps what cudaGetLastError will return.
cudaError_t result(cudaError_t error);
/// Ends the program, with a message, where a test's subject did what no GPU would bear.
void expect(bool holds, const char* what);

}  // namespace emulated
