#pragma once
// Tiles of queries, keys and values in shared memory, and the fragments that tensor cores take.
#include "tensor_core.cuh"

namespace train_gpt::gpu {

/// Where attention finds its operands: rows are tokens (sequence-major), a row of `qkv` holds the
/// queries of all heads, then keys, then values (3C), a row of the output the heads side by side
/// (C).
struct AttentionView {
  int context;  // T
  int heads;    // H
  float scale;  // 1 / sqrt(D)

  __device__ std::int64_t width(int head_width) const {
    return static_cast<std::int64_t>(heads) * head_width;
  }
};

/// Rows of D 16-bit elements in chunks of 16 bytes. Chunks are permuted within a row so that eight
/// rows' chunks of one column lie in different banks.
template <class T, int D>
struct Tile {
  static constexpr int chunks = D / 8;

  __device__ static int at(int row, int chunk) {
    const int permuted = D == 32 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7);
    return row * D + permuted * 8;
  }

  /// Begins to copy `rows` rows from `first` on; those from `limit` on become zeros.
  template <int rows, int threads>
  __device__ static void copy(T* tile, const T* from, std::int64_t stride, int first, int limit) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += threads) {
      const int row = i / chunks, chunk = i % chunks;
      const bool inside = first + row < limit;
      copy_16_bytes(tile + at(row, chunk), from + (inside ? first + row : 0) * stride + chunk * 8,
                    inside);
    }
  }

  /// Rows row .. row + 15, columns 16 k .. 16 k + 15, as left operand.
  __device__ static void left(unsigned (&a)[4], const T* tile, int row, int k) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(a, tile + at(row + (lane & 15), 2 * k + (lane >> 4)));
  }
  /// The same 16 rows as columns of a right operand whose k runs along the row: tile^T.
  /// b[0], b[1]: the first eight of the rows; b[2], b[3]: the others.
  __device__ static void right_of_rows(unsigned (&b)[4], const T* tile, int row, int k) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(b, tile + at(row + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
  }
  /// Rows row .. row + 15 as k of a right operand, columns 16 n .. 16 n + 15 as its columns.
  __device__ static void right_of_columns(unsigned (&b)[4], const T* tile, int row, int n) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_transposed(b, tile + at(row + (lane & 15), 2 * n + (lane >> 4)));
  }

  /// Writes a warp's 16 x D sums, times `low` and `high` for rows l / 4 and l / 4 + 8, to rows
  /// `first` .. of `to`, by way of the warp's own 16 rows of `tile`.
  __device__ static void write(T* to, std::int64_t stride, int first, int limit, T* tile, int row,
                               const float (&sum)[D / 8][4], float low, float high) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      auto put = [&](int r, float x, float y) {
        *reinterpret_cast<unsigned*>(tile + at(row + r, n) + 2 * (lane % 4)) = packed<T>(x, y);
      };
      put(lane / 4, sum[n][0] * low, sum[n][1] * low);
      put(lane / 4 + 8, sum[n][2] * high, sum[n][3] * high);
    }
    __syncwarp();
    for (int i = lane; i < 16 * chunks; i += 32) {
      const int r = i / chunks, chunk = i % chunks;
      if (first + r < limit)
        *reinterpret_cast<uint4*>(to + (first + r) * stride + chunk * 8) =
            *reinterpret_cast<const uint4*>(tile + at(row + r, chunk));
    }
  }
};

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

inline constexpr float log2_e = 1.44269504088896340736f;

}  // namespace train_gpt::gpu
