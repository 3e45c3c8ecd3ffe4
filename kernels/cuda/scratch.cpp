#include "scratch.hpp"

#include <algorithm>
#include <bit>

#include "../../src/core/cuda_check.hpp"

namespace flatshard::cuda {

namespace {
constexpr int first_streams = 8;          // of a sharder and its user, with some to spare
constexpr Bytes first_bytes = 256 << 10;  // tables of thousands of tensors
constexpr Bytes first_zeros = 16 << 10;   // counters of thousands of nodes of the norm's tree
}  // namespace

Scratch::Scratch(int ordinal) : ordinal_(ordinal) {
  for (int i = 0; i < first_streams; ++i) {
    blocks_.push_back(allocate(first_bytes));
    zeros_.push_back(allocate(first_zeros));
  }
}

Scratch::~Scratch() {
  for (const Block& block : blocks_) flatshard::detail::ignore_cuda(cudaFree(block.data));
  for (const Block& block : zeros_) flatshard::detail::ignore_cuda(cudaFree(block.data));
  for (std::byte* data : outgrown_) flatshard::detail::ignore_cuda(cudaFree(data));
}

Scratch::Block Scratch::allocate(Bytes bytes) const {
  const flatshard::detail::CudaDeviceGuard guard(ordinal_);
  Block block{nullptr, nullptr, bytes, false};
  FLATSHARD_CHECK_CUDA(
      cudaMalloc(reinterpret_cast<void**>(&block.data), static_cast<std::size_t>(bytes)));
  // On the legacy default stream, which streams of ours do not wait for: hence the wait.
  FLATSHARD_CHECK_CUDA(cudaMemset(block.data, 0, static_cast<std::size_t>(bytes)));
  FLATSHARD_CHECK_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return block;
}

std::byte* Scratch::block(std::vector<Block>& blocks, cudaStream_t stream, Bytes bytes) {
  const auto is_mine = [&](const Block& block) { return block.taken && block.stream == stream; };
  auto found = std::find_if(blocks.begin(), blocks.end(), is_mine);
  if (found == blocks.end())
    found = std::find_if(blocks.begin(), blocks.end(), [](const Block& b) { return !b.taken; });
  if (found == blocks.end()) {
    blocks.push_back(allocate(first_bytes));
    found = blocks.end() - 1;
  }
  if (found->bytes < bytes) {
    const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(bytes));
    const Block larger = allocate(static_cast<Bytes>(rounded));
    outgrown_.push_back(found->data);
    *found = larger;
  }
  found->stream = stream;
  found->taken = true;
  return found->data;
}

}  // namespace flatshard::cuda
