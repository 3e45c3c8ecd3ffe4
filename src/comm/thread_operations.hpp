// What each rank does to memory once all have come to a collective.
#pragma once

#include "thread_group.hpp"

namespace flatshard::detail {

/// True when every rank's `send` is copied into the slot on arrival.
bool is_staged(const CollectiveCall& call, int size);
/// Copies a small send buffer into the rank's part of the slot, and points `mine` there.
void stage(Slot& slot, Rank rank, int size, Contribution& mine);
/// The rank's share of the collective. Reads the others' send buffers; writes the rank's receive
/// buffer, and for all_reduce the rank's slice of everybody's.
void carry_out(const KernelTable& kernels, Slot& slot, Rank rank, int size);

}  // namespace flatshard::detail
