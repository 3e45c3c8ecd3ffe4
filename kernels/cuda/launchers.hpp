// What cuda_kernels.cpp, which the C++ compiler compiles, calls of the .cu files. Every function
// only enqueues; pointers are to device memory, spans of tables to host memory that is read at
// once.
#pragma once

#include <flatshard/ops/kernel_table.hpp>

#include <cuda_runtime_api.h>

namespace flatshard::cuda {

/// `count` elements from source to destination.
struct CopyPiece {
  const void* source;
  void* destination;
  Elements count;
  Elements first_block;  // see make_copy_table
};

/// destination[i] = to(source[i]). Throws UsageError for a pair of dtypes that has no conversion.
void launch_copy(const CopyPiece& piece, DType from, DType to, cudaStream_t stream);
/// The same for every piece of a table in device memory, which covers `blocks` blocks.
void launch_copy_pieces(const CopyPiece* table, int pieces, Elements blocks, DType from, DType to,
                        cudaStream_t stream);
/// Blocks of launch_copy_pieces that work on a piece.
Elements blocks_of_copy(const CopyPiece& piece, DType from, DType to);

void launch_add(const void* addend, DType addend_dtype, void* accumulator, DType accumulator_dtype,
                Elements count, cudaStream_t stream);
/// More sources than `inline_sources` are read from `table`, which holds all of them; else null.
inline constexpr int inline_sources = 8;
void launch_reduce(std::span<const void* const> sources, const void* const* table,
                   DType contribution, void* destination, DType result, Elements count,
                   cudaStream_t stream);

/// A node of the norm's tree and its place in what the blocks leave behind.
struct NormEntry {
  Elements offset;
  Elements count;
  Elements first_block;
  Elements first_group;  // of norm_group blocks; a node of one block has none
};
inline constexpr int inline_nodes = 32;
inline constexpr Elements norm_group = 1024;  // blocks whose values one block merges
enum class NormForm { Squares, Maxima };
/// Elements of one block.
Elements norm_block_elements(DType dtype);
/// `table`: null where there are at most inline_nodes. partials: one per block; sums: one per
/// group; counters: one per node, zero before and after.
struct NormScratch {
  const NormEntry* table;
  double* partials;
  double* sums;
  unsigned* counters;
};
/// values[k] of node k.
void launch_norm(NormForm form, const void* buffer, DType dtype, std::span<const NormEntry> nodes,
                 Elements blocks, Elements groups, const NormScratch& scratch, double* values,
                 cudaStream_t stream);
/// Carries out adds that are sorted into levels of independent ones: ends[l] is the end of level l.
void launch_merge(NormForm form, const NormAdd* adds, const int* ends, int levels, int value_count,
                  double* values, cudaStream_t stream);

void launch_fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical,
                 Elements count, cudaStream_t stream);
void launch_conclude(const ConcludeArguments& arguments, cudaStream_t stream);
/// Copies host bytes, which travel as parameters of kernels: nothing has to stay where it was, and
/// a captured graph keeps them.
void launch_upload(const void* source, void* destination, Bytes bytes, cudaStream_t stream);

}  // namespace flatshard::cuda
