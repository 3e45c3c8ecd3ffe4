#pragma once
// Tiles of queries, keys and values in shared memory: how they get there, the operands that tensor
// cores take from them, and the way back.
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

/// What a block works on: head blockIdx.x % H of sequence blockIdx.x / H.
template <int D>
struct BlockHead {
  std::int64_t width, stride;  // of a row of out (C), of qkv (3C)
  std::int64_t wide, narrow;   // where this head's first row begins in qkv, in out
  std::int64_t row;            // where its rows begin in lse and delta

  __device__ explicit BlockHead(const AttentionView& view)
      : width(view.width(D)),
        stride(3 * width),
        row(static_cast<std::int64_t>(blockIdx.x) * view.context) {
    const int sequence = static_cast<int>(blockIdx.x) / view.heads;
    const int head = static_cast<int>(blockIdx.x) % view.heads;
    const std::int64_t token = static_cast<std::int64_t>(sequence) * view.context;
    wide = token * stride + head * D;
    narrow = token * width + head * D;
  }
};

/// Copies tile rows of two operands into buffer step % 2 of each, as one group.
template <class T, int D, int rows, int threads>
__device__ inline void fetch_pair(T* first, const T* from_first, std::int64_t first_stride,
                                  T* second, const T* from_second, std::int64_t second_stride,
                                  int step, int limit) {
  const int buffer = step % 2 * rows * D;
  Tile<T, D>::template copy<rows, threads>(first + buffer, from_first, first_stride, step * rows,
                                           limit);
  Tile<T, D>::template copy<rows, threads>(second + buffer, from_second, second_stride, step * rows,
                                           limit);
  commit_copies();
}

/// work(step) on what fetch(step) copied, while the next step's copies are under way. fetch(begin)
/// has been called.
template <class Fetch, class Work>
__device__ inline void overlapped(int begin, int end, Fetch fetch, Work work) {
  for (int step = begin; step < end; ++step) {
    if (step + 1 < end) {
      fetch(step + 1);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    work(step);
    __syncthreads();
  }
}

inline constexpr float log2_e = 1.44269504088896340736f;

}  // namespace train_gpt::gpu
