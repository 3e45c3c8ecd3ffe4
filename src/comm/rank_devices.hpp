// The device of one rank among those that share a host.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/core/cuda_device.hpp>

namespace flatshard::detail {

/// NcclOptions::devices, for the rank of this number on its host.
inline CudaOptions options_of_rank(CudaOptions devices, Rank local_rank) {
  if (devices.pin_as_rank) *devices.pin_as_rank += local_rank;
  return devices;
}

}  // namespace flatshard::detail
