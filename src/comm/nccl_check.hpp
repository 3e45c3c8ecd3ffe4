// Results of NCCL in words.
#pragma once

#include <nccl.h>

#include <string>

namespace flatshard::detail {

/// "ncclAllGather failed: unhandled cuda error (1): ...", with what NCCL says of its last error.
std::string nccl_message(ncclComm_t communicator, ncclResult_t result, const std::string& call);

}  // namespace flatshard::detail
