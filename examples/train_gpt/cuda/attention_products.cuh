#pragma once
// Products of tiles on tensor cores; a result of 16 rows stays in a warp's registers.
#include "attention_tile.cuh"

namespace train_gpt::gpu {

template <int tiles, int blocks>
__device__ inline void set_zero(float (&sum)[tiles][blocks][4]) {
#pragma unroll
  for (int i = 0; i < tiles * blocks * 4; ++i) sum[i / 4 / blocks][i / 4 % blocks][i % 4] = 0.0f;
}

/// result (16 tiles x 8 blocks) = left rows * right rows^T over D columns.
template <class T, int D, int tiles, int blocks>
__device__ inline void products_of_rows(float (&result)[tiles][blocks][4], const T* left, int row,
                                        const T* right) {
  set_zero(result);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    unsigned a[tiles][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m) Tile<T, D>::left(a[m], left, row + 16 * m, k);
#pragma unroll
    for (int n = 0; n < blocks; n += 2) {
      unsigned b[4];
      Tile<T, D>::right_of_rows(b, right, 8 * n, k);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        multiply_add<T>(result[m][n], a[m], b[0], b[1]);
        multiply_add<T>(result[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// The left operand that 16 of a result's columns make, 8 blocks .. 8 blocks + 15.
template <class T>
__device__ inline void as_left(unsigned (&a)[4], const float (&low)[4], const float (&high)[4]) {
  a[0] = packed<T>(low[0], low[1]);
  a[1] = packed<T>(low[2], low[3]);
  a[2] = packed<T>(high[0], high[1]);
  a[3] = packed<T>(high[2], high[3]);
}

/// sum (16 tiles x D) += left (16 tiles x 8 blocks) * the tile's rows.
template <class T, int D, int tiles, int blocks>
__device__ inline void add_product(float (&sum)[tiles][D / 8][4],
                                   const float (&left)[tiles][blocks][4], const T* rows) {
#pragma unroll
  for (int k = 0; k < blocks / 2; ++k) {
    unsigned a[tiles][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m) as_left<T>(a[m], left[m][2 * k], left[m][2 * k + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      unsigned b[4];
      Tile<T, D>::right_of_columns(b, rows, 16 * k, n);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        multiply_add<T>(sum[m][2 * n], a[m], b[0], b[1]);
        multiply_add<T>(sum[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace train_gpt::gpu
