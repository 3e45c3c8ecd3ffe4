#include "cuda/device_batch.hpp"

#include <algorithm>

namespace train_gpt::gpu {
namespace {

flatshard::Bytes bytes_of(std::int64_t elements) {
  return elements * static_cast<flatshard::Bytes>(sizeof(std::int32_t));
}

/// Counting sort: rows of equal tokens stay in ascending order.
void sort_rows(std::int32_t* order, std::int32_t* begin, const std::int32_t* tokens,
               std::int64_t rows, std::int64_t vocabulary) {
  std::fill_n(begin, vocabulary + 1, 0);
  for (std::int64_t r = 0; r < rows; ++r) ++begin[tokens[r]];
  std::int32_t sum = 0;  // begin[v]: behind the rows of v, until they are placed from the end
  for (std::int64_t v = 0; v < vocabulary; ++v) begin[v] = sum += begin[v];
  begin[vocabulary] = sum;
  for (std::int64_t r = rows; r-- > 0;) order[--begin[tokens[r]]] = static_cast<std::int32_t>(r);
}

}  // namespace

BatchLoader::BatchLoader(std::int64_t rows, std::int64_t vocabulary, flatshard::CudaDevice& device,
                         flatshard::Stream& stream)
    : rows_{rows},
      vocabulary_{vocabulary},
      device_(device),
      stream_(stream),
      pinned_(device.pinned(), bytes_of(static_cast<std::int64_t>(slots) * elements())),
      on_device_(device.memory(), bytes_of(elements())) {
  for (std::size_t i = 0; i < slots; ++i) copied_.push_back(device.make_event());
}

std::int32_t* BatchLoader::tokens_of_slot() const {
  return static_cast<std::int32_t*>(pinned_.data()) + static_cast<std::int64_t>(slot_) * elements();
}

std::int32_t* BatchLoader::tokens() {
  copied_[slot_]->synchronize();
  return tokens_of_slot();
}

DeviceBatch BatchLoader::load() {
  std::int32_t* const from = tokens_of_slot();
  sort_rows(from + 2 * rows_, from + 3 * rows_, from, rows_, vocabulary_);
  device_.copy(from, on_device_.data(), bytes_of(elements()), stream_);
  stream_.record(*copied_[slot_]);
  slot_ = (slot_ + 1) % slots;
  const auto* const at = static_cast<const std::int32_t*>(on_device_.data());
  return {at, at + rows_, at + 2 * rows_, at + 3 * rows_};
}

}  // namespace train_gpt::gpu
