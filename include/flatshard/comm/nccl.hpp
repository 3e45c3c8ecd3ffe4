// Ranks on CUDA devices, over NCCL: as threads of one process, as processes, or on a communicator
// of the user's. In a build without NCCL everything is here too and throws UsageError.
//
// Sums do not follow NCCL's own order: contributions are exchanged as they are (bf16 travels as
// bf16), and each rank sums its slice by the tree T with the library's kernels, in fp32 (fp64).
// So sums have the bits of every other communicator's at every world size, 16-bit sums are rounded
// once, fp16 needs no pre-scale, and a bf16 gradient needs half the bytes of an fp32 wire.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/comm/control_channel.hpp>
#include <flatshard/core/cuda_device.hpp>

#include <chrono>
#include <functional>
#include <memory>

namespace flatshard {

/// How long to wait, and what to check.
struct NcclOptions {
  /// Longest wait for NCCL's own work on the host (init, split) and of synchronize() of a stream or
  /// event for collectives on it; then the communicator is aborted and the last call named.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  /// Before every collective the ranks compare their calls and name both sides when they differ.
  /// For finding faults: it blocks the host every time.
  bool check_calls = false;
  /// Of the devices that NcclWorld and ProcessWorld make. Threads are pinned as rank pin_as_rank +
  /// the rank's number on its host.
  CudaOptions devices = {};
};

/// Communicator of a job whose ranks share `channel`; collective over it. Both outlive it.
/// canonical_reduction() is true. device() is `device`. Errors: a failure of NCCL or of another
/// rank is thrown by the next call here or by whoever waits for a stream that has collectives on
/// it; NCCL's communicators are then aborted.
std::unique_ptr<Communicator> make_nccl_communicator(ControlChannel& channel, CudaDevice& device,
                                                     const NcclOptions& options = {});

/// The user's own ncclComm_t, which is neither destroyed nor aborted: after an error the user must
/// abort it. It must be used by this alone while this lives. Failures of other ranks are known only
/// as far as NCCL knows them.
std::unique_ptr<Communicator> adopt_nccl_communicator(void* nccl_communicator, CudaDevice& device,
                                                      const NcclOptions& options = {});

/// Ranks as threads of this process, rank r on CUDA device r.
class NcclWorld {
 public:
  /// Throws UsageError for fewer than one rank and for more than CUDA devices.
  explicit NcclWorld(int size, NcclOptions options = {});
  int size() const { return size_; }  // number of ranks

  /// Calls rank_main once per rank, each in a thread of its own, and waits for all. Throws the
  /// first failure as a CommunicationError "rank r: message"; the exception itself is nested in it.
  void run(const std::function<void(Communicator&)>& rank_main);

 private:
  int size_;
  NcclOptions options_;
};

}  // namespace flatshard
