// Ranks as threads of one process.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <chrono>
#include <functional>
#include <memory>

namespace flatshard {

/// How a ThreadWorld waits.
struct ThreadWorldOptions {
  /// A rank that waits longer than this for the others in one collective fails the run, with the
  /// name of the missing rank. Zero: waits for ever.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

/// `size` ranks, each a thread. Host memory and host streams only.
///
///   ThreadWorld world{4};
///   world.run([](Communicator& comm) { ... });  // called in 4 threads; comm.rank() is 0 ... 3
///
/// Collectives copy, and form the reduction tree, by reading the peers' buffers; whoever waits
/// sleeps after a short spin. They allocate nothing. Up to 2048 bytes are copied on arrival, so
/// that a rank goes on as soon as all have come; larger ones end when every rank has read.
/// A communicator of n ranks holds 16 * n * 2048 bytes for that, beside the Plan.
///
/// Failures are of the whole world, whichever communicator they began in: an exception that leaves
/// one rank's function, an abort, a mismatch, a task that a failed stream skips, or a rank whose
/// function returned (or whose communicator was destroyed) before a call that others wait in. Every
/// pending and later collective of every rank then throws the same CommunicationError.
///
/// Streams and buffers that outlive the function may still run collectives that it issued.
class ThreadWorld {
 public:
  /// Sums with the host kernels, one thread a rank.
  explicit ThreadWorld(int size, ThreadWorldOptions options = {});
  /// Sums with `kernels`, which must outlive the world and be callable from all ranks at once.
  ThreadWorld(int size, const KernelTable& kernels, ThreadWorldOptions options = {});

  int size() const { return size_; }  // number of ranks

  /// Calls rank_main once per rank and joins all. Rethrows the first failure as CommunicationError
  /// "rank r: message" (with the exception itself nested in it, see std::rethrow_if_nested), also
  /// when rank functions have swallowed it. May be called again, also after a failure.
  void run(const std::function<void(Communicator&)>& rank_main);

 private:
  int size_;
  std::shared_ptr<const KernelTable> kernels_;
  ThreadWorldOptions options_;
};

}  // namespace flatshard
