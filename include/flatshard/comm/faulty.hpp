// Makes a communicator slow or wrong on purpose, for tests.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/comm/decorator.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace flatshard {

/// What goes wrong. Calls are counted from 1 in the order of issue, over a rank's communicator and
/// all parts split from it; split and synchronize count too.
struct Faults {
  std::chrono::microseconds delay{0};  // how long a delayed call takes longer
  std::int64_t delay_every = 1;        // every n-th call is delayed; 0: none
  Rank delay_rank = -1;                // world rank that is slow; -1: all
  std::int64_t fail_call = 0;          // this call fails; 0: none
  Rank fail_rank = -1;                 // world rank on which it fails; -1: all
  bool on_stream = false;              // false: on the issuing thread, before the call is issued;
                                       // true: in a task just before it, on its (host) stream
};

/// Passes calls on, late or not at all. An injected failure is an Error whose message begins with
/// "injected failure at call n".
class FaultyCommunicator final : public CommunicatorDecorator {
 public:
  /// `inner` must outlive it; counting starts at 1.
  FaultyCommunicator(Communicator& inner, const Faults& faults);
  /// Owns `inner` and goes on counting in `calls`: a part made by split.
  FaultyCommunicator(std::unique_ptr<Communicator> inner, const Faults& faults,
                     std::shared_ptr<std::atomic<std::int64_t>> calls);

  /// Calls so far.
  std::int64_t calls() const { return calls_->load(); }

  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override;
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override;
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override;
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void synchronize() override;

 private:
  void disturb(const CollectiveCall& call, Stream* stream);

  Faults faults_;
  std::shared_ptr<std::atomic<std::int64_t>> calls_;
};

}  // namespace flatshard
