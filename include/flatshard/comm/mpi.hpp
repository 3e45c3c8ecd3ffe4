// Ranks as processes that MPI connects, on host memory: those of mpirun, or of a communicator of
// the user's. In a build without MPI everything is here too and throws UsageError.
//
// Sums do not follow MPI's own order (MPI_SUM is never used): contributions are exchanged as they
// are and each rank sums its slice by the tree T with the library's kernels. So sums have the bits
// of every other communicator's at every world size.
#pragma once

#include <flatshard/comm/communicator.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>

namespace flatshard {

/// How long to wait, and how long a message may be.
struct MpiOptions {
  /// A rank that waits longer than this for the others in one collective fails the job, with the
  /// name of the missing rank (the first rank of a communicator is given twice as long).
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  /// A rank from whose process nothing has been heard for so long counts as dead, which fails the
  /// job with its name. A thread of its own is heard even while the rank computes, but not while a
  /// debugger has stopped the process. Zero: never.
  std::chrono::milliseconds silence = std::chrono::seconds(5);
  /// Bytes of one MPI message, 1 to 2^31 - 1; what is longer is cut. Equal on all ranks.
  Bytes largest_message = Bytes{1} << 30;
  friend bool operator==(const MpiOptions&, const MpiOptions&) = default;
};

/// The ranks of MPI_COMM_WORLD, one process each. Host memory and host streams only.
///
///   MpiWorld world;                             // under mpirun -n 4
///   world.run([](Communicator& comm) { ... });  // once in this process, for its rank
///
/// Collectives of one communicator run one after the other, in the order of issue. Ranks compare
/// their calls before any data moves. Waits poll, so that a failure anywhere ends them. Besides the
/// Plan a communicator holds at most 8 MiB (with more than 2048 ranks 4 KiB a rank) of scratch.
/// They allocate nothing, for parts of ranks up to `largest_message`.
///
/// Failures are of the whole world, as in ThreadWorld; rank 0 says which was the first. They travel
/// on a communicator of their own, looked at by whoever waits and by one thread of each process. A
/// process that ends without a word is found by its silence: its neighbour listens for a sign of
/// life twenty times in `silence`.
///
/// MPI is initialised here, with MPI_THREAD_MULTIPLE, when the program has not done so; then it is
/// finalised when the program exits, unless a rank has died. A program that has must have asked for
/// MPI_THREAD_MULTIPLE and finalises after the world is gone.
class MpiWorld {
 public:
  /// Throws UsageError for options that cannot be, for an MPI with less than MPI_THREAD_MULTIPLE
  /// and for one that has been finalised.
  explicit MpiWorld(MpiOptions options = {});

  Rank rank() const { return rank_; }  // of this process
  int size() const { return size_; }   // number of ranks

  /// Collective; calls rank_main once, for this process's rank. Returns when it has returned on
  /// every rank and all that was issued has run. Throws the first failure of any rank as a
  /// CommunicationError "rank r: message" (with this rank's own exception nested in it), also when
  /// rank functions have swallowed it. May be called again, after a failure too unless a rank died.
  void run(const std::function<void(Communicator&)>& rank_main);

 private:
  MpiOptions options_;
  Rank rank_ = 0;
  int size_ = 1;
};

namespace detail {
std::unique_ptr<Communicator> adopt_mpi(const void* communicator, std::size_t bytes,
                                        const MpiOptions& options);
}  // namespace detail

/// A communicator over the user's own MPI_Comm, which is duplicated and neither used nor freed
/// afterwards. Collective over it; world ranks are its ranks. Its destructor waits until every rank
/// has come to it, for MPI must not be finalised before; one that runs because of an exception
/// fails the others instead. Throws UsageError for MPI_COMM_NULL, for an inter-communicator, for
/// one of another MPI than the library was built with, and as MpiWorld does.
template <class MpiCommunicator>
requires std::is_trivially_copyable_v<MpiCommunicator> &&
    (std::integral<MpiCommunicator> || std::is_pointer_v<MpiCommunicator>)
        std::unique_ptr<Communicator> adopt_mpi_communicator(MpiCommunicator communicator,
                                                             const MpiOptions& options = {}) {
  return detail::adopt_mpi(&communicator, sizeof(communicator), options);
}

/// Whether this build of the library has MPI.
bool has_mpi() noexcept;

}  // namespace flatshard
