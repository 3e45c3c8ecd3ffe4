#pragma once
// The matrix product of one instruction set. Included after Vector<Real> by the one source file per
// instruction set; everything here is local to that file, so the linker can mix nothing.

#include "kernels.hpp"

namespace train_gpt {
namespace {

template <class Real>
struct Tile {
  static constexpr int vectors = Vector<Real>::lanes == 1 ? 4 : 2;
  static constexpr int columns = vectors * Vector<Real>::lanes;
};

/// One register tile: C (Rows, Tile columns) from `depth` steps of k. A(i, p) = a[i * row + p *
/// column]; B is a packed panel, Tile columns per k.
template <class Real, int Rows>
void register_tile(const Real* a, std::int64_t a_row, std::int64_t a_column, const Real* panel,
                   std::int64_t depth, Real* c, std::int64_t c_row, const Real* start,
                   std::int64_t start_row) {
  using V = Vector<Real>;
  constexpr int vectors = Tile<Real>::vectors;
  typename V::type sum[Rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      sum[i][v] = start ? V::load(start + i * start_row + v * V::lanes) : V::zero();
  for (std::int64_t p = 0; p < depth; ++p) {
    typename V::type right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) right[v] = V::load(panel + v * V::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const auto left = V::broadcast(a[i * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = V::fma(left, right[v], sum[i][v]);
    }
    a += a_column;
    panel += Tile<Real>::columns;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) V::store(c + i * c_row + v * V::lanes, sum[i][v]);
}

template <class Real>
using TileFunction = void (*)(const Real*, std::int64_t, std::int64_t, const Real*, std::int64_t,
                              Real*, std::int64_t, const Real*, std::int64_t);

template <class Real>
TileFunction<Real> tile_of(std::int64_t rows) {
  static_assert(tile_rows <= gemm_max_rows);
  constexpr TileFunction<Real> table[] = {register_tile<Real, 1>, register_tile<Real, 2>,
                                          register_tile<Real, 3>, register_tile<Real, 4>,
                                          register_tile<Real, 5>, register_tile<Real, 6>,
                                          register_tile<Real, 7>, register_tile<Real, 8>};
  return table[rows - 1];
}

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// panel[p][j] = B(p, j) for one panel of Tile columns, zero beyond `columns`.
template <class Real>
void pack_panel(Real* panel, const Real* b, std::int64_t b_row, std::int64_t b_column,
                std::int64_t depth, std::int64_t columns) {
  constexpr std::int64_t width = Tile<Real>::columns;
  if (columns == width && b_column == 1) {
    for (std::int64_t p = 0; p < depth; ++p)
      __builtin_memcpy(panel + p * width, b + p * b_row, sizeof(Real) * width);
    return;
  }
  std::int64_t p = 0;
  if (columns == width && b_row == 1)
    for (; p + 4 <= depth; p += 4)
      for (std::int64_t j = 0; j < width; j += 4)
        transpose_4x4(panel + p * width + j, width, b + p + j * b_column, b_column);
  for (; p < depth; ++p)
    for (std::int64_t j = 0; j < width; ++j)
      panel[p * width + j] = j < columns ? b[p * b_row + j * b_column] : Real(0);
}

/// Slivers of tile_rows rows, one behind the other: sliver[p][i] = A(i, p), for rows that lie side
/// by side in memory (a_row = 1). Several at once, because a row of A^T is read by whole cache
/// lines.
template <class Real>
void pack_slivers(Real* slivers, const Real* a, std::int64_t a_column, std::int64_t depth,
                  std::int64_t rows) {
  const std::int64_t whole = rows / tile_rows, rest = rows % tile_rows;
  for (std::int64_t p = 0; p < depth; ++p) {
    const Real* from = a + p * a_column;
    Real* to = slivers + p * tile_rows;
    for (std::int64_t s = 0; s < whole; ++s)
      __builtin_memcpy(to + s * tile_rows * depth, from + s * tile_rows, sizeof(Real) * tile_rows);
    for (std::int64_t i = 0; i < rest; ++i)
      to[whole * tile_rows * depth + i] = from[whole * tile_rows + i];
  }
}

/// A tile that sticks out of C on the right goes through `edge`, a tile of its own.
template <class Real>
void edge_tile(const Real* a, std::int64_t a_row, std::int64_t a_column, const Real* panel,
               std::int64_t depth, Real* c, std::int64_t c_row, const Real* start,
               std::int64_t start_row, std::int64_t rows, std::int64_t columns, Real* edge) {
  constexpr std::int64_t width = Tile<Real>::columns;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      edge[i * width + j] = start && j < columns ? start[i * start_row + j] : Real(0);
  tile_of<Real>(rows)(a, a_row, a_column, panel, depth, edge, width, edge, width);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) c[i * c_row + j] = edge[i * width + j];
}

/// One packed block: all rows of C, `columns` columns, `depth` steps of k.
template <class Real>
void gemm_block(const MatrixProduct<Real>& t, const Real* a, const Real* packed, Real* c,
                const Real* start, std::int64_t start_row, std::int64_t depth, std::int64_t columns,
                Real* slivers, Real* edge) {
  constexpr std::int64_t width = Tile<Real>::columns;
  const bool side_by_side = t.a_column != 1;
  const std::int64_t a_row = side_by_side ? 1 : t.a_row;
  const std::int64_t a_column = side_by_side ? tile_rows : 1;
  for (std::int64_t i = 0; i < t.m; i += tile_rows) {
    const std::int64_t rows = smaller(tile_rows, t.m - i);
    const std::int64_t within = i % (gemm_slivers * tile_rows);
    if (side_by_side && within == 0)
      pack_slivers(slivers, a + i, t.a_column, depth, smaller(gemm_slivers * tile_rows, t.m - i));
    const Real* left = side_by_side ? slivers + within * depth : a + i * t.a_row;
    const TileFunction<Real> tile = tile_of<Real>(rows);
    for (std::int64_t j = 0; j < columns; j += width) {
      const Real* from = start ? start + i * start_row + j : nullptr;
      Real* to = c + i * t.c_row + j;
      if (columns - j >= width)
        tile(left, a_row, a_column, packed + j * depth, depth, to, t.c_row, from, start_row);
      else
        edge_tile(left, a_row, a_column, packed + j * depth, depth, to, t.c_row, from, start_row,
                  rows, columns - j, edge);
    }
  }
}

template <class Real>
void gemm(const MatrixProduct<Real>& t) {
  constexpr std::int64_t width = Tile<Real>::columns;
  Real* packed = t.scratch;
  Real* slivers = packed + gemm_depth * (gemm_columns + 64);
  Real* edge = slivers + gemm_depth * gemm_slivers * gemm_max_rows;
  for (std::int64_t j = 0; j < t.n; j += gemm_columns) {
    const std::int64_t columns = smaller(gemm_columns, t.n - j);
    for (std::int64_t p = 0; p < t.k || p == 0; p += gemm_depth) {
      const std::int64_t depth = smaller(gemm_depth, t.k - p);
      for (std::int64_t q = 0; q < columns; q += width)
        pack_panel(packed + q * depth, t.b + p * t.b_row + (j + q) * t.b_column, t.b_row,
                   t.b_column, depth, smaller(width, columns - q));
      const Real* start = p ? t.c + j : t.start ? t.start + j : nullptr;
      gemm_block(t, t.a + p * t.a_column, packed, t.c + j, start, p ? t.c_row : t.start_row, depth,
                 columns, slivers, edge);
    }
  }
}

}  // namespace
}  // namespace train_gpt
