#pragma once
// What a rank's model needs on its GPU besides parameters: one allocation.

#include <flatshard/core/buffer.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/kernels.hpp"
#include "shape.hpp"

namespace train_gpt::gpu {

/// What forward leaves for backward, for one block. Rows are the R = sequences * T tokens.
template <class T>
struct BlockActivations {
  T* input;                      // (R, C) residual stream on entry
  T* ln_1;                       // (R, C)
  float *ln_1_mean, *ln_1_rstd;  // (R)
  T* qkv;                        // (R, 3C)
  float* lse;                    // (sequences, H, T)
  T* attention;                  // (R, C)
  T* middle;                     // (R, C) residual stream between attention and MLP
  T* ln_2;                       // (R, C)
  float *ln_2_mean, *ln_2_rstd;  // (R)
  T* fc;                         // (R, 4C) before GELU
  T* gelu;                       // (R, 4C)
};

/// Shared by all blocks, valid inside one call; `gradient` lasts through a micro-step.
template <class T>
struct Shared {
  T* final_input;                // (R, C) residual stream after the last block
  T* ln_f;                       // (R, C)
  float *ln_f_mean, *ln_f_rstd;  // (R)
  T* logits;                     // (rows of a chunk, V), then their gradients
  float* losses;                 // (R)
  T* gradient;                   // (R, C) of the residual stream
  T* wide;                       // (R, 4C)
  T* narrow;                     // (R, C)
  float* delta;                  // (sequences, H, T)
  float* scratch;                // of column sums
  float* dhead;                  // (V, C) fp32 sum of the head's gradient; null when not needed
};

template <class T>
class DeviceWorkspace {
 public:
  DeviceWorkspace(const ModelShape& shape, std::int64_t sequences,
                  flatshard::MemoryResource& memory)
      : blocks_(static_cast<std::size_t>(shape.layers)) {
    chunk_ = chunk_rows(sequences * shape.context, shape.vocabulary);
    std::size_t bytes = 0;
    lay_out(shape, sequences,
            [&](auto*&, std::int64_t count, std::size_t size) { bytes += padded(count, size); });
    memory_ = flatshard::Buffer(memory, static_cast<flatshard::Bytes>(bytes));
    char* next = static_cast<char*>(memory_.data());
    lay_out(shape, sequences, [&](auto*& piece, std::int64_t count, std::size_t size) {
      piece = reinterpret_cast<std::remove_reference_t<decltype(piece)>>(next);
      next += padded(count, size);
    });
  }

  const BlockActivations<T>& block(std::int64_t layer) const {
    return blocks_[static_cast<std::size_t>(layer)];
  }
  const Shared<T>& shared() const { return shared_; }
  /// Rows whose logits are held at once.
  std::int64_t chunk() const { return chunk_; }

 private:
  static constexpr std::int64_t most_logits = std::int64_t{1} << 31;  // bytes at once

  static std::size_t padded(std::int64_t count, std::size_t size) {
    return (static_cast<std::size_t>(count) * size + 255) / 256 * 256;
  }
  static std::int64_t chunk_rows(std::int64_t rows, std::int64_t vocabulary) {
    const std::int64_t most =
        std::max<std::int64_t>(1, most_logits / (vocabulary * std::int64_t{sizeof(T)}));
    const std::int64_t chunks = (rows + most - 1) / most;
    return (rows + chunks - 1) / chunks;
  }
  /// take(pointer, elements, bytes of one) of every piece in order.
  template <class Take>
  void lay_out(const ModelShape& shape, std::int64_t sequences, Take take_bytes);

  std::vector<BlockActivations<T>> blocks_;
  Shared<T> shared_{};
  std::int64_t chunk_ = 0;
  flatshard::Buffer memory_;
};

template <class T>
template <class Take>
void DeviceWorkspace<T>::lay_out(const ModelShape& shape, std::int64_t sequences, Take take_bytes) {
  const auto take = [&](auto*& piece, std::int64_t count) {
    take_bytes(piece, count, sizeof *piece);
  };
  const std::int64_t t = shape.context, r = sequences * t, c = shape.width;
  for (BlockActivations<T>& b : blocks_) {
    for (float** rows : {&b.ln_1_mean, &b.ln_1_rstd, &b.ln_2_mean, &b.ln_2_rstd}) take(*rows, r);
    for (T** plane : {&b.input, &b.ln_1, &b.attention, &b.middle, &b.ln_2}) take(*plane, r * c);
    for (T** plane : {&b.fc, &b.gelu}) take(*plane, r * 4 * c);
    take(b.qkv, r * 3 * c);
    take(b.lse, r * shape.heads);
  }
  Shared<T>& s = shared_;
  for (float** rows : {&s.ln_f_mean, &s.ln_f_rstd, &s.losses}) take(*rows, r);
  for (T** plane : {&s.final_input, &s.ln_f, &s.gradient, &s.narrow}) take(*plane, r * c);
  take(s.logits, chunk_ * shape.vocabulary);
  take(s.wide, r * 4 * c);
  take(s.delta, r * shape.heads);
  take(s.scratch, static_cast<std::int64_t>(column_scratch(r, 4 * c)));
  if (!shape.untied_head || chunk_ < r) take(s.dhead, shape.vocabulary * c);
}

}  // namespace train_gpt::gpu
