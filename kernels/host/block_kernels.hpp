// What one instruction set does to a block of elements: leaf loops without allocation, threads or
// decisions. block_kernels.cpp is compiled once per instruction set; host_kernels.cpp calls the
// loops through this table.
#pragma once

#include <flatshard/tensor/dtype.hpp>

namespace flatshard::host {

inline constexpr int floating_dtypes = 6;  // the first rows of the dtype table
inline constexpr Elements block_elements =
    1024;                                // elements; 8 KiB of doubles stay in a level-1 cache
inline constexpr Bytes cache_line = 64;  // bytes; what a non-temporal store should fill

/// destination[i] = converted(source[i]), rounded once. The two do not overlap.
using Convert = void (*)(const void* source, void* destination, Elements count);
/// The same past the cache: whole cache lines of the destination, which is aligned to one. Whoever
/// calls fences before anybody else may read.
using StreamLines = void (*)(const void* source, void* destination, Elements lines);
/// The perfect binary tree over neighbours of (double)x * x; absent elements count as zero.
/// Requires 0 <= count <= block_elements.
using SquareSum = double (*)(const void* source, Elements count);
/// The largest |source[i]|, 0 without elements, NaN if any is NaN.
using AbsoluteMaximum = double (*)(const void* source, Elements count);

/// Arrays are indexed by DType.
struct BlockKernels {
  Convert to_float[floating_dtypes];
  Convert from_float[floating_dtypes];
  Convert to_double[floating_dtypes];
  Convert from_double[floating_dtypes];
  StreamLines stream_to_float[floating_dtypes];
  StreamLines stream_from_float[floating_dtypes];
  StreamLines stream_copy;  // of any dtype
  SquareSum square_sum[floating_dtypes];
  AbsoluteMaximum absolute_maximum[floating_dtypes];
  /// accumulator[i] = accumulator[i] + addend[i]. The two do not overlap.
  void (*accumulate_float)(const float* addend, float* accumulator, Elements count);
  void (*accumulate_double)(const double* addend, double* accumulator, Elements count);
  /// sum[i] = first[i] + second[i]. sum overlaps neither.
  void (*add_float)(const float* first, const float* second, float* sum, Elements count);
  void (*add_double)(const double* first, const double* second, double* sum, Elements count);
  /// sum[i] = (terms[0][i] + terms[1][i]) + (terms[2][i] + terms[3][i]). sum overlaps none.
  void (*add_four_float)(const float* const* terms, float* sum, Elements count);
  void (*add_four_double)(const double* const* terms, double* sum, Elements count);
};

namespace baseline {
extern const BlockKernels block_kernels;
}
namespace avx2 {
extern const BlockKernels block_kernels;
}
namespace avx512 {
extern const BlockKernels block_kernels;
}

}  // namespace flatshard::host
