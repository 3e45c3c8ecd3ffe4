// Device memory that kernels need for a moment, one place per stream: work of one stream is in
// order, so each call may use it from its beginning.
#pragma once

#include <flatshard/core/types.hpp>

#include <cuda_runtime_api.h>

#include <vector>

namespace flatshard::cuda {

/// Grows when a stream or a larger call is first seen; steady steps allocate nothing. What was
/// outgrown is kept, because the device may still use it. A stream must have no work left when it
/// is destroyed: another one may get its handle, and with it its memory. Growing allocates, which a
/// stream that is being captured forbids: run a step before capturing one. Thread-safety: one
/// thread.
class Scratch {
 public:
  /// Blocks of the first streams are allocated now.
  explicit Scratch(int ordinal);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// `bytes` of memory for work that is enqueued on `stream` now; aligned to 256 bytes.
  std::byte* get(cudaStream_t stream, Bytes bytes) { return block(blocks_, stream, bytes); }
  /// The same, but all zero when first given out; whoever uses it leaves zeros behind.
  std::byte* get_zeros(cudaStream_t stream, Bytes bytes) { return block(zeros_, stream, bytes); }

 private:
  struct Block {
    cudaStream_t stream;
    std::byte* data;
    Bytes bytes;
    bool taken;  // has a stream
  };

  std::byte* block(std::vector<Block>& blocks, cudaStream_t stream, Bytes bytes);
  Block allocate(Bytes bytes) const;

  int ordinal_;
  std::vector<Block> blocks_;
  std::vector<Block> zeros_;
  std::vector<std::byte*> outgrown_;
};

}  // namespace flatshard::cuda
