#pragma once
// A micro-batch on its way to a GPU.

#include <flatshard/core/cuda_device.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace train_gpt::gpu {

/// Device memory, valid in the stream's order until the next load.
struct DeviceBatch {
  const std::int32_t *tokens, *targets;  // (R)
  const std::int32_t* order;             // (R) rows by token
  const std::int32_t* begin;             // (V + 1) where each token's rows begin in `order`
};

/// Copies micro-batches to the device without waiting for it: through pinned slots that are used
/// again when their copy is done.
class BatchLoader {
 public:
  BatchLoader(std::int64_t rows, std::int64_t vocabulary, flatshard::CudaDevice& device,
              flatshard::Stream& stream);

  /// Host memory for the next micro-batch; waits until an earlier copy from there is done.
  std::int32_t* tokens();
  std::int32_t* targets() { return tokens_of_slot() + rows_; }
  /// Sorts the rows by token and enqueues the copy of what was written to tokens() and targets().
  DeviceBatch load();

 private:
  static constexpr std::size_t slots = 4;

  std::int32_t* tokens_of_slot() const;
  std::int64_t elements() const { return 3 * rows_ + vocabulary_ + 1; }

  std::int64_t rows_, vocabulary_;
  flatshard::CudaDevice& device_;
  flatshard::Stream& stream_;
  flatshard::Buffer pinned_, on_device_;
  std::vector<std::unique_ptr<flatshard::Event>> copied_;
  std::size_t slot_ = 0;
};

}  // namespace train_gpt::gpu
