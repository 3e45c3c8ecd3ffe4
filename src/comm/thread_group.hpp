// What the ranks of one thread communicator share: a ring of rendezvous slots.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/core/parking.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "thread_session.hpp"

namespace flatshard::detail {

/// One rank's side of one collective.
struct Contribution {
  CollectiveCall call;
  const void* send = nullptr;
  void* receive = nullptr;
  int color = 0;  // of a split, as is key
  int key = 0;
};

/// Where the ranks of a group meet for the calls number s, s + slots, s + 2 * slots, ...: the call
/// uses the slot while `generation` is s / slots. Either all ranks come to a call, and then all
/// carry it out and finish, or nobody does: a failure breaks a slot only while someone is missing.
struct alignas(64) Slot {
  explicit Slot(int size);

  static constexpr std::uint32_t ready = 1u << 30;   // all have come and agree
  static constexpr std::uint32_t broken = 1u << 31;  // nobody carries this call out
  static constexpr Bytes small_payload = 2048;       // sent by copy, see ThreadWorld

  std::byte* staging_of(Rank rank) { return staging.data() + rank * small_payload; }
  bool settled() const { return (arrivals.load() & (ready | broken)) != 0; }

  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::uint32_t> arrivals{0};  // ranks that have come, plus one of the flags above
  std::atomic<std::uint32_t> finished{0};  // ranks that need nothing of the others any more
  Parking parking;
  std::vector<Contribution> contributions;  // by rank
  std::vector<std::atomic<bool>> present;   // by rank: has come
  std::vector<const void*> sources;         // by rank: room for a list of `size` addresses
  std::vector<std::byte> staging;           // by rank: small_payload bytes
  std::vector<std::shared_ptr<ThreadGroup>> split_results;  // by rank: the leader of each color's
};

/// Shared by the members and by the collectives they have issued. The lists of ranks are by
/// position in this group; names in messages are world ranks.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadSession> session, std::vector<Rank> members);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  std::span<const Rank> members() const { return members_; }
  ThreadSession& session() const { return *session_; }

  /// Takes the number of the rank's next call. Only the rank's issuing thread.
  std::uint64_t issue(Rank rank);
  /// Carries out the rank's side of call `index` in the calling thread; blocks until it is done.
  void run(Rank rank, std::uint64_t index, Contribution mine);
  /// The rank's side of call `index` will never run, because of `reason`.
  void abandon(Rank rank, const CollectiveCall& call, const std::exception_ptr& reason) noexcept;
  /// Blocks; the group of all members with this color, ordered by (key, rank).
  std::shared_ptr<ThreadGroup> split(Rank rank, int color, int key);
  /// The rank issues no more calls.
  void close(Rank rank);
  void wake_all();

 private:
  static constexpr std::uint64_t slots = 16;  // calls of one rank that may be under way at once

  struct Place {  // one rank in one call
    Slot& slot;
    std::uint64_t index;
    Rank rank;
  };

  Place enter(Rank rank, std::uint64_t index);
  void arrive(const Place& place, const Contribution& mine);
  void settle(Slot& slot, std::uint64_t index) noexcept;
  void wait_for_all(const Place& place);
  void blame_missing(const Place& place);
  void break_off(Slot& slot);
  void finish(const Place& place, bool until_all);
  std::optional<Rank> departed(std::uint64_t index) const;
  std::shared_ptr<ThreadGroup> part_of(const std::vector<Rank>& positions) const;
  std::vector<Rank> members_of_color(const Slot& slot, int color) const;
  Rank world_rank(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<ThreadSession> session_;
  std::vector<Rank> members_;
  std::vector<std::atomic<std::uint64_t>> issued_;  // by rank: calls so far
  std::vector<std::atomic<bool>> closed_;           // by rank
  std::vector<std::unique_ptr<Slot>> ring_;
};

}  // namespace flatshard::detail
