#include "mpi_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bytes_at.hpp"

namespace flatshard::detail {

namespace {

constexpr Bytes most_scratch = Bytes{8} << 20, least_block = 4096, most_block = Bytes{1} << 20;
constexpr int first_tag = 2;  // of data

Bytes block_for(int size) {
  if (size == 1) return 0;
  const Bytes even = most_scratch / (size - 1) / exchange_alignment * exchange_alignment;
  return std::clamp(even, least_block, most_block);
}

int tag_of(int group) {
  void* limit = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
  const int most = found != 0 ? *static_cast<int*>(limit) : 32767;
  FLATSHARD_EXPECTS(group <= most - first_tag,
                    fmt::format("split: MPI has {} tags, and {} groups were made", most, group));
  return first_tag + group;
}

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<MpiSession> session, int id, std::vector<Rank> members,
                   Rank rank)
    : session_(std::move(session)),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      transfers_(*session_, tag_of(id), 2 * members_.size()),
      notes_(rank == 0 ? members_.size() : 1),
      block_(block_for(size())),
      scratch_(unsigned_of(block_ * (size() - 1))),
      sources_(members_.size()) {}

std::uint64_t MpiGroup::issue() {
  if (session_->failed()) session_->throw_failure();
  return issued_.fetch_add(1);
}

template <class Body>
void MpiGroup::take_turn(std::uint64_t index, const CollectiveCall& call, const Body& body) {
  static_cast<void>(has_run(index, MpiClock::duration::max()));
  if (session_->failed()) session_->throw_failure();
  index_ = index;
  call_ = call;
  try {
    if (size() > 1) agree();
    body();
  } catch (...) {
    session_->fail(std::current_exception());
  }
  done_.store(index + 1);
  turn_.notify();
  if (session_->failed()) session_->throw_failure();
}

void MpiGroup::run(std::uint64_t index, const MpiCall& mine) {
  take_turn(index, mine.call, [&] { carry_out(mine); });
}

void MpiGroup::abandon(const CollectiveCall& call, const std::exception_ptr& reason) noexcept {
  if (reason != nullptr) return session_->fail(reason);
  session_->fail({session_->rank(), to_string(call) + " was dropped before it ran"});
}

/// Rank 0 gets every rank's call and says go.
void MpiGroup::agree() {
  constexpr Bytes note = sizeof(MpiCallNote);
  char go = 1;
  notes_[0] = MpiCallNote(index_, call_);
  if (rank_ != 0) {
    transfers_.send(&notes_[0], note, world_rank(0));
    transfers_.receive(&go, 1, world_rank(0));
    return wait();
  }
  for (Rank other = 1; other < size(); ++other)
    transfers_.receive(&notes_[unsigned_of(other)], note, world_rank(other));
  wait();
  compare();
  for (Rank other = 1; other < size(); ++other) transfers_.send(&go, 1, world_rank(other));
  wait();
}

void MpiGroup::compare() {
  for (Rank other = 1; other < size(); ++other) {
    const MpiCallNote& theirs = notes_[unsigned_of(other)];
    if (theirs == notes_[0]) continue;
    session_->fail({world_rank(other), mismatch_message(index_, world_rank(0), call_,
                                                        world_rank(other), theirs.call())});
    session_->throw_failure();
  }
}

/// While a member lets us wait: has it left, has it had its time?
void MpiGroup::watch(Rank missing, MpiClock::duration waited) {
  const auto calls = session_->calls_of(missing, id_);
  const auto patience = session_->options().patience;
  const bool has_left = calls && *calls <= index_;
  // Rank 0 waits for all, and names who is missing; for rank 0 the others wait longer.
  if (!has_left && waited <= (rank_ == 0 ? patience : 2 * patience)) return;
  session_->fail({missing, fmt::format("{} collective call {}, in which rank {} waits: {}",
                                       has_left ? "left before"
                                                : fmt::format("did not come within {} ms to",
                                                              patience.count()),
                                       index_, session_->rank(), to_string(call_))});
  session_->throw_failure();
}

void MpiGroup::wait() {
  transfers_.wait([this](Rank missing, MpiClock::duration waited) { watch(missing, waited); });
}

std::vector<MpiGroup::Part> MpiGroup::all_parts(int color, int key) {
  std::vector<Part> parts(members_.size());
  const Part mine{color, key, session_->proposed_group()};
  parts[unsigned_of(rank_)] = mine;
  for (Rank other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    transfers_.send(&mine, sizeof(mine), world_rank(other));
    transfers_.receive(&parts[unsigned_of(other)], sizeof(Part), world_rank(other));
  }
  wait();
  return parts;
}

std::shared_ptr<MpiGroup> MpiGroup::split(int color, int key) {
  std::shared_ptr<MpiGroup> result;
  take_turn(issue(), {Operation::Split}, [&] {
    const std::vector<Part> parts = all_parts(color, key);
    int id = 0;
    for (const Part& part : parts) id = std::max(id, part.next_group);
    session_->take_groups(id + 1);
    std::vector<Rank> ranks;
    for (Rank other = 0; other < size(); ++other)
      if (parts[unsigned_of(other)].color == color) ranks.push_back(other);
    std::stable_sort(ranks.begin(), ranks.end(), [&](Rank one, Rank other) {
      return parts[unsigned_of(one)].key < parts[unsigned_of(other)].key;
    });
    const auto position = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    for (Rank& rank : ranks) rank = world_rank(rank);
    result =
        std::make_shared<MpiGroup>(session_, id, std::move(ranks), static_cast<Rank>(position));
  });
  return result;
}

void MpiGroup::close() noexcept {
  const std::span<const Rank> all = members();
  session_->leave(id_, issued_.load(), rank_ == 0 ? all : all.first(1));
}

bool MpiGroup::has_run(std::uint64_t calls, MpiClock::duration patience) {
  constexpr auto glance = std::chrono::milliseconds(10);  // at failures, by who waits for a turn
  const MpiClock::time_point start = MpiClock::now();
  const auto is_over = [&] { return done_.load() == calls || session_->failed(); };
  while (!turn_.wait_for(glance, is_over))
    if (MpiClock::now() - start > patience) return false;
  return true;
}

void MpiGroup::finish() {
  const auto patience = session_->options().patience;
  if (!has_run(issued_.load(), patience))
    session_->fail({session_->rank(), fmt::format("collective calls that it has issued did not run "
                                                  "within {} ms",
                                                  patience.count())});
}

}  // namespace flatshard::detail
