// What a thread has put into a group of NCCL's calls.
#pragma once

#include "nccl_clique.hpp"

namespace emulated {

/// Blocks until the work of an aborted member has ended: in a group when the group ends, so that
/// all members of the group are aborted by then.
void drain_after_group(std::shared_ptr<Member> member);

}  // namespace emulated
