#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kernels/kernels.hpp"
#include "shape.hpp"

namespace train_gpt {

/// One allocation, cut into pieces that each begin at a cache line.
template <class Real>
class Arena {
 public:
  explicit Arena(std::int64_t elements) : storage_{allocate(elements)} {}

  static std::int64_t padded(std::int64_t elements) { return (elements + 15) / 16 * 16; }
  Real* data() const { return storage_.get(); }

 private:
  struct Free {
    void operator()(Real* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  static Real* allocate(std::int64_t elements) {
    const std::size_t bytes = sizeof(Real) * static_cast<std::size_t>(padded(elements));
    return static_cast<Real*>(::operator new (bytes, std::align_val_t{64}));
  }
  std::unique_ptr<Real, Free> storage_;
};

/// What forward leaves for backward, for one block. Rows are the R = sequences * T tokens.
template <class Real>
struct BlockActivations {
  Real* input;                  // (R, C) residual stream on entry
  Real* ln_1;                   // (R, C)
  Real *ln_1_mean, *ln_1_rstd;  // (R)
  Real* qkv;                    // (R, 3C) query, key, value side by side
  Real* probabilities;          // (sequences, H, T, T)
  Real* attention;              // (R, C)
  Real* middle;                 // (R, C) residual stream between attention and MLP
  Real* ln_2;                   // (R, C)
  Real *ln_2_mean, *ln_2_rstd;  // (R)
  Real* fc;                     // (R, 4C) before GELU
  Real* gelu;                   // (R, 4C)
};

/// Shared by all blocks, valid inside one call; `stream` and `gradient` last through a micro-step.
template <class Real>
struct Shared {
  Real* final_input;            // (R, C) residual stream after the last block
  Real* ln_f;                   // (R, C)
  Real *ln_f_mean, *ln_f_rstd;  // (R)
  Real* logits;                 // (R, V), then their gradients
  Real* gradient;               // (R, C) of the residual stream
  Real* wide;                   // (R, 4C)
  Real* narrow;                 // (R, C)
  Real* scores;                 // (T, T)
  Real* dwte;                   // (V, C) tied: the head's part, waiting for the embedding's
  Real* weights;                // widened parameters of one module
  Real* gradients;              // of one module, before they are rounded
  Real* scratch;                // of the matrix product
};

/// All that a rank's model needs besides its parameters, allocated once.
template <class Real>
class Workspace {
 public:
  Workspace(const ModelShape& shape, std::int64_t sequences);

  const BlockActivations<Real>& block(std::int64_t layer) const {
    return blocks_[static_cast<std::size_t>(layer)];
  }
  const Shared<Real>& shared() const { return shared_; }

 private:
  /// Runs over all pieces in order; `take(pointer, elements)` either counts or hands out memory.
  template <class Take>
  void lay_out(const ModelShape& shape, std::int64_t sequences, Take take);
  std::int64_t measure(const ModelShape& shape, std::int64_t sequences);

  std::vector<BlockActivations<Real>> blocks_;
  Shared<Real> shared_{};
  Arena<Real> arena_;
};

template <class Real>
Workspace<Real>::Workspace(const ModelShape& shape, std::int64_t sequences)
    : blocks_(static_cast<std::size_t>(shape.layers)), arena_{measure(shape, sequences)} {
  Real* next = arena_.data();
  lay_out(shape, sequences, [&](Real*& piece, std::int64_t elements) {
    piece = next;
    next += Arena<Real>::padded(elements);
  });
}

template <class Real>
std::int64_t Workspace<Real>::measure(const ModelShape& shape, std::int64_t sequences) {
  std::int64_t sum = 0;
  lay_out(shape, sequences,
          [&](Real*&, std::int64_t elements) { sum += Arena<Real>::padded(elements); });
  return sum;
}

template <class Real>
template <class Take>
void Workspace<Real>::lay_out(const ModelShape& shape, std::int64_t sequences, Take take) {
  const std::int64_t t = shape.context, r = sequences * t, c = shape.width;
  for (BlockActivations<Real>& b : blocks_) {
    for (Real** rows : {&b.ln_1_mean, &b.ln_1_rstd, &b.ln_2_mean, &b.ln_2_rstd}) take(*rows, r);
    for (Real** plane : {&b.input, &b.ln_1, &b.attention, &b.middle, &b.ln_2}) take(*plane, r * c);
    for (Real** plane : {&b.fc, &b.gelu}) take(*plane, r * 4 * c);
    take(b.qkv, r * 3 * c);
    take(b.probabilities, sequences * shape.heads * t * t);
  }
  Shared<Real>& s = shared_;
  for (Real** rows : {&s.ln_f_mean, &s.ln_f_rstd}) take(*rows, r);
  for (Real** plane : {&s.final_input, &s.ln_f, &s.gradient, &s.narrow}) take(*plane, r * c);
  take(s.logits, r * shape.vocabulary);
  take(s.wide, r * 4 * c);
  take(s.scores, t * t);
  take(s.dwte, shape.vocabulary * c);
  take(s.weights, largest_module(shape));
  take(s.gradients, largest_module(shape));
  take(s.scratch, gemm_scratch_elements);
}

}  // namespace train_gpt
