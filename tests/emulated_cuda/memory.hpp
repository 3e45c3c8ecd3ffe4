// What the runtime knows of addresses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace emulated {

/// What a device can reach: its own memory and what is pinned.
struct Block {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = -1;
  bool owned = false;  // allocated here, as opposed to registered
};

/// The block around an address; of no bytes where there is none.
Block block_around(const void* address);
/// A kernel reads or writes these bytes: it must be able to.
void touch(const void* begin, std::size_t bytes);

}  // namespace emulated
