// The ranks of one NCCL communicator, threads of one process: where their transfers meet. Each
// transfer has a number, counted where it is issued, so that streams may come to them in any order.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "work.hpp"

namespace emulated {

/// What a rank offers to another, until it is taken or withdrawn.
struct Offer {
  const void* data;
  std::size_t bytes;
  bool taken = false;
};

/// A rank that has called ncclCommSplit.
struct Splitter {
  int color, key;
  ncclComm_t* child;
  int device;
  bool blocking;  // the child
};

/// All that its ranks share; `mutex` guards the rest, and what is said to be guarded by it.
struct Clique {
  using Place = std::tuple<int, int, std::uint64_t>;  // from, to, number
  explicit Clique(int of_size) : size(of_size) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::map<Place, Offer*, std::less<>, Malloc<std::pair<const Place, Offer*>>> offers;
  std::map<int, Splitter> splitters;  // by rank
};

/// One rank's part of a communicator; work in streams shares it.
struct Member {
  std::shared_ptr<Clique> clique;
  int rank;
  int device;
  bool blocking;
  std::vector<std::uint64_t> sent, received;  // transfers issued, by peer
  std::uint64_t issued = 0;                   // batches of transfers
  // Guarded by the clique's mutex.
  std::uint64_t done = 0;
  bool aborted = false, finalized = false;
  ncclResult_t error = ncclSuccess;
  int polls = 0;  // that will find it in progress
};

/// Bytes that a rank sends or receives.
struct Transfer {
  bool sends;
  void* memory;
  std::size_t bytes;
  int peer;
  std::uint64_t number;
};

ncclComm_t make_communicator(std::shared_ptr<Clique> clique, int rank, int device, bool blocking);
/// Carries out transfers side by side; ends when all are done or the member is aborted.
void transfer(Member& member, const Array<Transfer>& transfers);
/// Makes work that is waiting end, and what comes later do nothing.
void abort(Member& member);
/// Blocks until all that was issued has ended.
void drain(Member& member);

}  // namespace emulated

struct ncclComm {
  std::shared_ptr<emulated::Member> member;
};
