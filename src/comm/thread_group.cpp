#include "thread_group.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "thread_operations.hpp"

namespace flatshard::detail {

Slot::Slot(int size)
    : contributions(static_cast<std::size_t>(size)),
      present(static_cast<std::size_t>(size)),
      sources(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)),
      staging(static_cast<std::size_t>(size * small_payload)),
      split_results(static_cast<std::size_t>(size)) {}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadSession> session, std::vector<Rank> members)
    : session_(std::move(session)),
      members_(std::move(members)),
      issued_(members_.size()),
      closed_(members_.size()) {
  for (std::uint64_t i = 0; i < slots; ++i) ring_.push_back(std::make_unique<Slot>(size()));
  session_->add(*this);
}

ThreadGroup::~ThreadGroup() { session_->remove(*this); }

std::uint64_t ThreadGroup::issue(Rank rank) {
  if (session_->failed()) session_->throw_failure();
  return issued_[static_cast<std::size_t>(rank)].fetch_add(1);
}

void ThreadGroup::run(Rank rank, std::uint64_t index, Contribution mine) {
  const Place place = enter(rank, index);
  const bool staged = is_staged(mine.call, size());
  if (staged) stage(place.slot, rank, size(), mine);
  arrive(place, mine);
  try {
    carry_out(session_->kernels(), place.slot, rank, size());
  } catch (...) {
    session_->fail(world_rank(rank), std::current_exception());
  }
  finish(place, !staged);
  if (session_->failed()) session_->throw_failure();
}

void ThreadGroup::abandon(Rank rank, const CollectiveCall& call,
                          const std::exception_ptr& reason) noexcept {
  if (reason != nullptr) return session_->fail(world_rank(rank), reason);
  session_->fail(world_rank(rank), to_string(call) + " was dropped before it ran");
}

std::shared_ptr<ThreadGroup> ThreadGroup::split(Rank rank, int color, int key) {
  const Place place = enter(rank, issue(rank));
  arrive(place, {.call = {Operation::Split}, .color = color, .key = key});
  auto& results = place.slot.split_results;
  Rank leader = rank;
  try {
    const std::vector<Rank> positions = members_of_color(place.slot, color);
    leader = positions.front();
    if (rank == leader) results[static_cast<std::size_t>(leader)] = part_of(positions);
  } catch (...) {
    session_->fail(world_rank(rank), std::current_exception());
  }
  finish(place, true);
  if (session_->failed()) session_->throw_failure();
  // Stays until this slot's next split, which cannot happen before this rank has returned.
  return results[static_cast<std::size_t>(leader)];
}

void ThreadGroup::close(Rank rank) {
  closed_[static_cast<std::size_t>(rank)].store(true);
  session_->someone_left();
}

void ThreadGroup::wake_all() {
  for (const auto& slot : ring_) slot->parking.notify();
}

ThreadGroup::Place ThreadGroup::enter(Rank rank, std::uint64_t index) {
  Slot& slot = *ring_[index % slots];
  const std::uint64_t generation = index / slots;
  const auto is_free = [&] { return slot.generation.load() == generation; };
  slot.parking.wait([&] { return is_free() || session_->failed(); });
  if (session_->failed()) session_->throw_failure();
  return {slot, index, rank};
}

void ThreadGroup::arrive(const Place& place, const Contribution& mine) {
  Slot& slot = place.slot;
  slot.contributions[static_cast<std::size_t>(place.rank)] = mine;
  slot.present[static_cast<std::size_t>(place.rank)].store(true);
  const std::uint32_t before = slot.arrivals.fetch_add(1);
  if (before + 1 == static_cast<std::uint32_t>(size()))
    settle(slot, place.index);
  else
    wait_for_all(place);
  if ((slot.arrivals.load() & Slot::broken) != 0) session_->throw_failure();
}

// By the last to come, while the others wait: their labels are still alive.
void ThreadGroup::settle(Slot& slot, std::uint64_t index) noexcept {
  const Contribution& first = slot.contributions.front();
  std::uint32_t verdict = Slot::ready;
  for (Rank rank = 1; rank < size() && verdict == Slot::ready; ++rank) {
    const Contribution& other = slot.contributions[static_cast<std::size_t>(rank)];
    if (other.call == first.call) continue;
    verdict = Slot::broken;
    session_->fail(world_rank(rank), mismatch_message(index, world_rank(0), first.call,
                                                      world_rank(rank), other.call));
  }
  slot.arrivals.fetch_or(verdict);
  slot.parking.notify();
}

void ThreadGroup::wait_for_all(const Place& place) {
  Slot& slot = place.slot;
  const auto stirred = [&] {
    return slot.settled() || session_->failed() || departed(place.index).has_value();
  };
  while (!slot.settled()) {
    if (const auto patience = session_->patience(); patience.count() == 0)
      slot.parking.wait(stirred);
    else
      slot.parking.wait_for(patience, stirred);
    if (slot.settled()) return;
    if (!session_->failed()) blame_missing(place);
    if (session_->failed()) break_off(slot);
  }
}

// Someone left, or patience is over.
void ThreadGroup::blame_missing(const Place& place) {
  const auto& present = place.slot.present;
  const auto absent =
      std::find_if(present.begin(), present.end(), [](auto& p) { return !p.load(); });
  if (absent == present.end()) return;  // came at the last moment
  const std::optional<Rank> gone = departed(place.index);
  const Rank missing = gone.value_or(static_cast<Rank>(absent - present.begin()));
  const Contribution& mine = place.slot.contributions[static_cast<std::size_t>(place.rank)];
  session_->fail(
      world_rank(missing),
      fmt::format("{} collective call {}, in which rank {} waits: {}",
                  gone ? "left before"
                       : fmt::format("did not come within {} ms to", session_->patience().count()),
                  place.index, world_rank(place.rank), to_string(mine.call)));
}

// After a failure: nobody carries this call out, unless all have come already.
void ThreadGroup::break_off(Slot& slot) {
  std::uint32_t seen = slot.arrivals.load();
  while (seen < static_cast<std::uint32_t>(size())) {  // without flags, and someone is missing
    if (!slot.arrivals.compare_exchange_weak(seen, seen | Slot::broken)) continue;
    return slot.parking.notify();
  }
}

void ThreadGroup::finish(const Place& place, bool until_all) {
  Slot& slot = place.slot;
  const std::uint64_t next = place.index / slots + 1;
  if (slot.finished.fetch_add(1) + 1 == static_cast<std::uint32_t>(size())) {
    for (auto& present : slot.present) present.store(false);
    slot.arrivals.store(0);
    slot.finished.store(0);
    slot.generation.store(next);
    slot.parking.notify();
  } else if (until_all) {
    slot.parking.wait([&] { return slot.generation.load() >= next; });
  }
}

// A member that will never issue this call.
std::optional<Rank> ThreadGroup::departed(std::uint64_t index) const {
  if (!session_->anyone_left()) return std::nullopt;
  for (Rank rank = 0; rank < size(); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const bool left = closed_[i].load() || session_->ended(world_rank(rank));
    if (left && issued_[i].load() <= index) return rank;
  }
  return std::nullopt;
}

std::shared_ptr<ThreadGroup> ThreadGroup::part_of(const std::vector<Rank>& positions) const {
  std::vector<Rank> members;
  for (Rank position : positions) members.push_back(world_rank(position));
  return std::make_shared<ThreadGroup>(session_, std::move(members));
}

std::vector<Rank> ThreadGroup::members_of_color(const Slot& slot, int color) const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < size(); ++rank)
    if (slot.contributions[static_cast<std::size_t>(rank)].color == color) ranks.push_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(), [&](Rank one, Rank other) {
    return slot.contributions[static_cast<std::size_t>(one)].key <
           slot.contributions[static_cast<std::size_t>(other)].key;
  });
  return ranks;
}

}  // namespace flatshard::detail
