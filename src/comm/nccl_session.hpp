// One rank's NCCL communicators: the world and what was split off it. They fail together.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/comm/nccl.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../core/cuda_memory.hpp"
#include "../core/cuda_stream.hpp"
#include "nccl_check.hpp"

namespace flatshard::detail {

/// Thread-safety: one thread, the rank's. All waits poll NCCL and the other ranks, so no thread of
/// its own is needed, and NCCL is never called by two threads.
class NcclSession final : public StreamMonitor {
 public:
  /// channel: none for a communicator of the user's.
  NcclSession(ControlChannel* channel, Rank world_rank, int size, CudaDevice& device,
              NcclOptions options);
  ~NcclSession() override;

  CudaDevice& device() const { return device_; }
  const NcclOptions& options() const { return options_; }

  /// Throws CommunicationError when this rank or another has failed; polls both.
  void poll(std::chrono::steady_clock::duration waited) override;
  /// Blocks until NCCL has done on the host what `call` began; what went wrong is thrown.
  void settle(ncclComm_t communicator, ncclResult_t result, const char* call);
  /// The same for what ncclCommSplit gives, which NCCL's thread stores when it is there.
  void settle_child(ncclComm_t& child);
  /// Tells every rank, aborts the communicators and throws.
  [[noreturn]] void fail(const Failure& failure);
  void fail_quietly(const Failure& failure) noexcept;
  /// The same in the name of this rank.
  [[noreturn]] void fail(const std::string& message) { fail({world_rank_, message}); }

  /// From now on it is polled and, if owned, aborted after a failure. Null: one rank's, who needs
  /// none of NCCL.
  void add(ncclComm_t communicator, bool owned);
  /// Ends it: in order when all is well, else by abort. Never throws.
  void remove(ncclComm_t communicator, bool unwinding) noexcept;
  bool failed() const { return failure_.has_value(); }

  /// Remembers the call for messages, and its number among this rank's calls of all communicators.
  void note(const CollectiveCall& call);

  /// all[r * bytes ...] == what rank r of the communicator gave; blocks the host. At most
  /// most_exchange bytes a rank. Among all ranks of the job over the channel (null), else by way of
  /// the device.
  static constexpr Bytes most_exchange = 256;  // bytes
  void exchange(ncclComm_t communicator, int size, const void* mine, void* all, Bytes bytes);

 private:
  /// What is waited for, while one lives.
  class Awaited {
   public:
    Awaited(NcclSession& session, const char* what)
        : session_(session), before_(std::exchange(session.awaited_, what)) {}
    ~Awaited() { session_.awaited_ = before_; }
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

   private:
    NcclSession& session_;
    const char* before_;
  };
  struct Member {
    ncclComm_t communicator;
    bool owned;
  };

  [[noreturn]] void throw_failure() const;
  void abort_all() noexcept;
  void announce_abort() noexcept;
  void poll_nccl();
  void poll_patience(std::chrono::steady_clock::duration waited);
  std::string last_call() const;
  void exchange_over_channel(const void* mine, void* all, Bytes bytes);

  ControlChannel* channel_;
  Rank world_rank_;
  CudaDevice& device_;
  NcclOptions options_;
  std::vector<Member> members_;
  int communicators_ = 0;  // alive; the channel is used no longer than one is
  std::optional<Failure> failure_;
  const char* awaited_ = "work on a stream";
  CollectiveCall last_{Operation::Synchronize};
  std::array<char, 64> last_label_{};
  // Of exchanges; not taken from the device's memory(), whose bytes a Plan accounts for.
  CudaMemory memory_;
  PinnedMemory pinned_;
  Buffer on_device_, on_host_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace flatshard::detail
