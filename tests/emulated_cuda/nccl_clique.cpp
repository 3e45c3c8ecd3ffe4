// How the transfers of NCCL's ranks meet.
#include "nccl_clique.hpp"

#include <cstring>
#include <deque>

#include "memory.hpp"

namespace emulated {
namespace {

using Lock = std::unique_lock<std::mutex>;
using Offers = std::deque<Offer, Malloc<Offer>>;

Clique::Place place_of(const Member& member, const Transfer& transfer) {
  return transfer.sends ? Clique::Place{member.rank, transfer.peer, transfer.number}
                        : Clique::Place{transfer.peer, member.rank, transfer.number};
}

void receive(Member& member, const Transfer& wanted, Lock& lock) {
  Clique& clique = *member.clique;
  const Clique::Place place = place_of(member, wanted);
  clique.changed.wait(lock, [&] { return member.aborted || clique.offers.contains(place); });
  if (member.aborted) return;
  Offer& offer = *clique.offers.at(place);
  if (offer.bytes == wanted.bytes)
    std::memmove(wanted.memory, offer.data, offer.bytes);
  else
    member.error = ncclInvalidUsage;  // where NCCL would hang or do harm
  offer.taken = true;
  clique.offers.erase(place);
  clique.changed.notify_all();
}

}  // namespace

void transfer(Member& member, const Array<Transfer>& transfers) {
  Clique& clique = *member.clique;
  for (const Transfer& each : transfers) touch(each.memory, each.bytes);
  Lock lock(clique.mutex);
  Offers offers;
  for (const Transfer& each : transfers)
    if (each.sends && !member.aborted)
      clique.offers[place_of(member, each)] = &offers.emplace_back(Offer{each.memory, each.bytes});
  clique.changed.notify_all();
  for (const Transfer& each : transfers)
    if (!each.sends) receive(member, each, lock);
  const auto all_taken = [&] {
    for (const Offer& offer : offers)
      if (!offer.taken) return false;
    return true;
  };
  clique.changed.wait(lock, [&] { return member.aborted || all_taken(); });
  if (member.aborted)
    for (const Transfer& each : transfers)
      if (each.sends) clique.offers.erase(place_of(member, each));
  ++member.done;
  clique.changed.notify_all();
}

ncclComm_t make_communicator(std::shared_ptr<Clique> clique, int rank, int device, bool blocking) {
  auto member = std::make_shared<Member>();
  const auto size = static_cast<std::size_t>(clique->size);
  member->clique = std::move(clique);
  member->rank = rank;
  member->device = device;
  member->blocking = blocking;
  member->sent.resize(size);
  member->received.resize(size);
  return new ncclComm{std::move(member)};
}

void abort(Member& member) {
  const std::lock_guard lock(member.clique->mutex);
  member.aborted = true;
  member.clique->splitters.erase(member.rank);
  member.clique->changed.notify_all();
}

void drain(Member& member) {
  Lock lock(member.clique->mutex);
  member.clique->changed.wait(lock, [&] { return member.done == member.issued; });
}

}  // namespace emulated
