// The ranks of one communicator, as one of them sees them: its calls, one after the other.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/core/parking.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mpi_call_note.hpp"
#include "mpi_transfers.hpp"

namespace flatshard::detail {

/// One rank's side of one collective.
struct MpiCall {
  CollectiveCall call;
  const void* send = nullptr;
  void* receive = nullptr;
};

/// Shared by the communicator and by the collectives that it has issued. Ranks are positions in
/// this group; those in messages are world ranks. Rank 0 of the group compares the calls.
class MpiGroup {
 public:
  MpiGroup(std::shared_ptr<MpiSession> session, int id, std::vector<Rank> members, Rank rank);

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  std::span<const Rank> members() const { return members_; }
  Rank world_rank(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }
  MpiSession& session() const { return *session_; }

  /// Takes the number of the next call.
  std::uint64_t issue();
  /// Carries out call `index` in the calling thread; blocks until the ones before it and it are
  /// done.
  void run(std::uint64_t index, const MpiCall& mine);
  /// Call `index` will never run, because of `reason`.
  void abandon(const CollectiveCall& call, const std::exception_ptr& reason) noexcept;
  /// Blocks; the group of all members with this color, ordered by (key, rank).
  std::shared_ptr<MpiGroup> split(int color, int key);
  /// No more calls are issued.
  void close() noexcept;
  /// Blocks until all that was issued has run; fails after the patience.
  void finish();

 private:
  struct Part {  // what a rank says in a split
    int color, key, next_group;
  };

  template <class Body>
  void take_turn(std::uint64_t index, const CollectiveCall& call, const Body& body);
  /// Blocks until that many calls have run or the session has failed; false: it took too long.
  bool has_run(std::uint64_t calls, MpiClock::duration patience);
  void agree();
  void compare();
  void watch(Rank missing, MpiClock::duration waited);
  void wait();
  template <class Send>
  void exchange(const Send& send_and_receive);

  void carry_out(const MpiCall& mine);
  void move_alone(const MpiCall& mine);
  void all_gather(const MpiCall& mine);
  void broadcast(const MpiCall& mine);
  void reduce_scatter(const MpiCall& mine);
  void all_reduce(const MpiCall& mine);
  void sum_whole(const MpiCall& mine);
  void sum_slices(const MpiCall& mine);
  void spread_slices(const MpiCall& mine);
  void sum(const MpiCall& mine, const void* own, void* destination, Elements count);
  std::vector<Part> all_parts(int color, int key);
  std::byte* scratch_of(Rank other);

  std::shared_ptr<MpiSession> session_;
  int id_;
  std::vector<Rank> members_;
  Rank rank_;
  MpiTransfers transfers_;
  std::vector<MpiCallNote> notes_;  // by rank; elsewhere than on rank 0 one's own
  Bytes block_;                     // of scratch for each other rank
  std::vector<std::byte> scratch_;
  std::vector<const void*> sources_;

  std::atomic<std::uint64_t> issued_{0}, done_{0};
  Parking turn_;
  // Of the call whose turn it is:
  std::uint64_t index_ = 0;
  CollectiveCall call_{Operation::Synchronize};
};

}  // namespace flatshard::detail
