#include "thread_operations.hpp"

#include <flatshard/core/host_stream.hpp>

#include <algorithm>
#include <cstring>

#include "bytes_at.hpp"

namespace flatshard::detail {
namespace {

void copy(void* to, const void* from, Bytes bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, unsigned_of(bytes));
}

// Elements of every rank's send buffer.
Elements send_count(const CollectiveCall& call, int size) {
  return call.operation == Operation::ReduceScatter ? call.count * size : call.count;
}

struct Share {  // one rank's part of one collective
  const KernelTable& kernels;
  Slot& slot;
  Rank rank;
  int size;

  const Contribution& of(Rank other) const { return slot.contributions[unsigned_of(other)]; }
  const Contribution& mine() const { return of(rank); }
  const CollectiveCall& call() const { return mine().call; }

  // destination[i] = T over ranks of send[first + i], 0 <= i < count.
  void reduce(Elements first, Elements count, void* destination) const {
    if (count <= 0) return;
    const auto width = unsigned_of(size);
    const std::span<const void*> sources(&slot.sources[unsigned_of(rank) * width], width);
    const Bytes offset = first * size_of(call().contribution);
    for (Rank other = 0; other < size; ++other)
      sources[unsigned_of(other)] = bytes_at(of(other).send, offset);
    InlineStream now;
    kernels.reduce(sources, call().contribution, destination, call().result, count, now);
    now.synchronize();
  }
};

void all_gather(const Share& share) {
  const Bytes part = share.call().count * size_of(share.call().contribution);
  for (int step = 0; step < share.size; ++step) {  // each rank starts at another peer
    const Rank other = (share.rank + step) % share.size;
    copy(bytes_at(share.mine().receive, other * part), share.of(other).send, part);
  }
}

void reduce_scatter(const Share& share) {
  const Elements count = share.call().count;
  share.reduce(share.rank * count, count, share.mine().receive);
}

// The rank reduces its slice and hands it to everybody while it is in the cache. Nobody else
// touches this slice of any buffer, so that receive may be send.
void all_reduce_slice(const Share& share) {
  constexpr Elements line = 64, block = 1 << 15;
  const Elements slice = round_up(ceil_div(share.call().count, share.size), line);
  const Elements end = std::min((share.rank + 1) * slice, share.call().count);
  const Bytes width = size_of(share.call().result);
  for (Elements first = share.rank * slice; first < end; first += block) {
    const Elements count = std::min(block, end - first);
    void* reduced = bytes_at(share.mine().receive, first * width);
    share.reduce(first, count, reduced);
    for (Rank other = 0; other < share.size; ++other)
      copy(bytes_at(share.of(other).receive, first * width), reduced, count * width);
  }
}

void all_reduce(const Share& share) {
  if (!is_staged(share.call(), share.size)) return all_reduce_slice(share);
  share.reduce(0, share.call().count, share.mine().receive);
}

void broadcast(const Share& share) {
  const CollectiveCall& call = share.call();
  if (share.rank == call.root) return;
  copy(share.mine().receive, share.of(call.root).send, call.count * size_of(call.contribution));
}

}  // namespace

bool is_staged(const CollectiveCall& call, int size) {
  return send_count(call, size) * size_of(call.contribution) <= Slot::small_payload;
}

void stage(Slot& slot, Rank rank, int size, Contribution& mine) {
  const CollectiveCall& call = mine.call;
  if (call.operation == Operation::Broadcast && rank != call.root) return;
  copy(slot.staging_of(rank), mine.send, send_count(call, size) * size_of(call.contribution));
  mine.send = slot.staging_of(rank);
}

void carry_out(const KernelTable& kernels, Slot& slot, Rank rank, int size) {
  const Share share{kernels, slot, rank, size};
  switch (share.call().operation) {
    case Operation::AllGather:
      return all_gather(share);
    case Operation::ReduceScatter:
      return reduce_scatter(share);
    case Operation::AllReduce:
      return all_reduce(share);
    case Operation::Broadcast:
      return broadcast(share);
    case Operation::Split:
    case Operation::Synchronize:
      return;
  }
}

}  // namespace flatshard::detail
