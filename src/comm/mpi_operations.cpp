// What each rank does once all have come to a collective.
#include <flatshard/core/host_stream.hpp>

#include <algorithm>
#include <cstring>

#include "bytes_at.hpp"
#include "mpi_group.hpp"

namespace flatshard::detail {

namespace {

/// Elements [begin, begin + count) that `rank` sums of an all_reduce.
struct MpiSlice {
  Elements begin;
  Elements count;

  /// The part of it that lies in its block number `block` of `size` elements.
  MpiSlice block(Elements number, Elements size) const {
    const Elements at = std::min(number * size, count);
    return {begin + at, std::min(size, count - at)};
  }
};
MpiSlice mpi_slice_of(const CollectiveCall& call, Rank rank, int size) {
  const Elements slice = exchange_slice(call.count, size);
  const Elements begin = std::min(rank * slice, call.count);
  return {begin, std::min(slice, call.count - begin)};
}

void copy_bytes(void* to, const void* from, Bytes bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, unsigned_of(bytes));
}

}  // namespace

void MpiGroup::carry_out(const MpiCall& mine) {
  if (size() == 1) return move_alone(mine);
  switch (mine.call.operation) {
    case Operation::AllGather:
      return all_gather(mine);
    case Operation::ReduceScatter:
      return reduce_scatter(mine);
    case Operation::AllReduce:
      return all_reduce(mine);
    case Operation::Broadcast:
      return broadcast(mine);
    case Operation::Split:
    case Operation::Synchronize:
      return;
  }
}

void MpiGroup::move_alone(const MpiCall& mine) {
  if (mine.send == mine.receive || mine.call.count == 0) return;
  InlineStream now;
  session_->kernels().cast(mine.send, mine.call.contribution, mine.receive, mine.call.result,
                           mine.call.count, now);
  now.synchronize();
}

void MpiGroup::all_gather(const MpiCall& mine) {
  const Bytes part = mine.call.count * size_of(mine.call.contribution);
  for (int step = 1; step < size(); ++step) {  // each rank begins with another peer
    const Rank to = (rank_ + step) % size(), from = (rank_ + size() - step) % size();
    transfers_.receive(bytes_at(mine.receive, from * part), part, world_rank(from));
    transfers_.send(mine.send, part, world_rank(to));
  }
  copy_bytes(bytes_at(mine.receive, rank_ * part), mine.send, part);
  wait();
}

/// Along a binomial tree over the ranks counted from the root.
void MpiGroup::broadcast(const MpiCall& mine) {
  const Bytes bytes = mine.call.count * size_of(mine.call.contribution);
  const int position = (rank_ + size() - mine.call.root) % size();
  const auto member = [&](int at) { return world_rank((at + mine.call.root) % size()); };
  int bit = 1;
  while (bit < size() && (position & bit) == 0) bit <<= 1;
  if (position != 0) {
    transfers_.receive(mine.receive, bytes, member(position - bit));
    wait();
  }
  for (bit >>= 1; bit > 0; bit >>= 1)
    if (position + bit < size()) transfers_.send(mine.receive, bytes, member(position + bit));
  wait();
}

std::byte* MpiGroup::scratch_of(Rank other) {
  const Rank place = other < rank_ ? other : other - 1;
  return scratch_.data() + place * block_;
}

/// destination[i] = T over ranks of own[i] and what lies in the others' scratch.
void MpiGroup::sum(const MpiCall& mine, const void* own, void* destination, Elements count) {
  if (count == 0) return;
  for (Rank other = 0; other < size(); ++other)
    sources_[unsigned_of(other)] = other == rank_ ? own : scratch_of(other);
  InlineStream now;
  session_->kernels().reduce(sources_, mine.call.contribution, destination, mine.call.result, count,
                             now);
  now.synchronize();
}

void MpiGroup::reduce_scatter(const MpiCall& mine) {
  const Bytes width = size_of(mine.call.contribution);
  const Elements block = block_ / width;
  for (Elements at = 0; at < mine.call.count; at += block) {
    const Elements count = std::min(block, mine.call.count - at);
    const auto place = [&](Rank rank) {
      return bytes_at(mine.send, (rank * mine.call.count + at) * width);
    };
    for (int step = 1; step < size(); ++step) {
      const Rank to = (rank_ + step) % size(), from = (rank_ + size() - step) % size();
      transfers_.receive(scratch_of(from), count * width, world_rank(from));
      transfers_.send(place(to), count * width, world_rank(to));
    }
    wait();
    sum(mine, place(rank_), bytes_at(mine.receive, at * size_of(mine.call.result)), count);
  }
}

void MpiGroup::all_reduce(const MpiCall& mine) {
  const Bytes bytes = mine.call.count * size_of(mine.call.contribution);
  if (bytes <= block_ && is_small_exchange(mine.call, size())) return sum_whole(mine);
  sum_slices(mine);
  spread_slices(mine);
}

/// Everybody's whole contribution to everybody.
void MpiGroup::sum_whole(const MpiCall& mine) {
  const Bytes bytes = mine.call.count * size_of(mine.call.contribution);
  for (Rank other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    transfers_.receive(scratch_of(other), bytes, world_rank(other));
    transfers_.send(mine.send, bytes, world_rank(other));
  }
  wait();
  sum(mine, mine.send, mine.receive, mine.call.count);
}

/// Every rank sums its slice, in its place of `receive`.
void MpiGroup::sum_slices(const MpiCall& mine) {
  const Bytes width = size_of(mine.call.contribution);
  const Elements block = block_ / width;
  const Elements longest = mpi_slice_of(mine.call, 0, size()).count;
  for (Elements number = 0; number * block < longest; ++number) {
    const MpiSlice own = mpi_slice_of(mine.call, rank_, size()).block(number, block);
    for (int step = 1; step < size(); ++step) {
      const Rank to = (rank_ + step) % size(), from = (rank_ + size() - step) % size();
      const MpiSlice theirs = mpi_slice_of(mine.call, to, size()).block(number, block);
      transfers_.receive(scratch_of(from), own.count * width, world_rank(from));
      transfers_.send(bytes_at(mine.send, theirs.begin * width), theirs.count * width,
                      world_rank(to));
    }
    wait();
    sum(mine, bytes_at(mine.send, own.begin * width),
        bytes_at(mine.receive, own.begin * size_of(mine.call.result)), own.count);
  }
}

/// Every rank sends its slice of the sum to the others.
void MpiGroup::spread_slices(const MpiCall& mine) {
  const Bytes width = size_of(mine.call.result);
  const MpiSlice own = mpi_slice_of(mine.call, rank_, size());
  for (int step = 1; step < size(); ++step) {
    const Rank to = (rank_ + step) % size(), from = (rank_ + size() - step) % size();
    const MpiSlice theirs = mpi_slice_of(mine.call, from, size());
    transfers_.receive(bytes_at(mine.receive, theirs.begin * width), theirs.count * width,
                       world_rank(from));
    transfers_.send(bytes_at(mine.receive, own.begin * width), own.count * width, world_rank(to));
  }
  wait();
}

}  // namespace flatshard::detail
