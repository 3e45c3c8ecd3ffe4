// Sums over contributions in the order of ops/reduction_tree.hpp, block by block.
#pragma once

#include "mover.hpp"

#include <span>

namespace flatshard::host {

/// What one reduce call needs beside its range.
struct TreeReduce {
  const BlockKernels* kernels;
  std::span<const void* const> sources;
  DType contribution;
  void* destination;
  DType result;
  bool streams;  // write past the cache

  /// destination[i] for begin <= i < end. Each block is read from all sources before it is written.
  void run(Elements begin, Elements end) const;
};

/// accumulator[i] = accumulator[i] + addend[i] for begin <= i < end.
struct Accumulation {
  const BlockKernels* kernels;
  const void* addend;
  DType addend_dtype;
  void* accumulator;
  DType accumulator_dtype;

  void run(Elements begin, Elements end) const;
};

}  // namespace flatshard::host
