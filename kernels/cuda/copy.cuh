// Copies of elements with a conversion: the kernel of cast, flatten and unflatten.
#pragma once

#include "launchers.hpp"
#include "pack.cuh"

namespace flatshard::cuda {

/// Packs per thread. Measured on an H200, of the best copy: fp32 to fp32 1.00, 0.96, 0.95 with 1, 2
/// and 4; bf16 to fp32 0.96, 0.95, 0.93; fp32 to bf16 0.99, 1.02, 1.02. Of many pieces each block
/// first looks for its own, which more work makes up for.
template <class From, class To>
inline constexpr int copy_packs = sizeof(From) <= sizeof(To) ? 1 : 2;
inline constexpr int copy_packs_of_pieces = 4;

/// Blocks share a piece's packs: thread t of a block takes packs t, t + 256, ...
template <int Count, int Packs>
Elements blocks_of(const void* destination, Elements element_bytes, Elements count) {
  const auto place = static_cast<Elements>(reinterpret_cast<std::uintptr_t>(destination));
  const auto lead = static_cast<int>(place / element_bytes % Count);
  return ceil_div(packs_of<Count>(count, lead), Elements{block_threads} * Packs);
}

template <class From, class To, int Count, int Packs>
FLATSHARD_INLINE __device__ void copy_block(const CopyPiece& piece, Elements block) {
  const auto* source = static_cast<const From*>(piece.source);
  auto* destination = static_cast<To*>(piece.destination);
  const int lead = lead_of<Count>(destination);
  const bool aligned = lead_of<Count>(source) == lead;
  constexpr Elements stride = Elements{block_threads} * Count;
  const Elements first = (block * block_threads * Packs + threadIdx.x) * Count - lead;
  const Elements last = first + (Packs - 1) * stride;
  if (aligned && first >= 0 && last + Count <= piece.count) {
    Pack<From, Count> packs[Packs];
#pragma unroll
    for (int p = 0; p < Packs; ++p) packs[p] = load_pack<Count>(source, first + p * stride);
#pragma unroll
    for (int p = 0; p < Packs; ++p)
      store_pack(convert_pack<To>(packs[p].at), destination, first + p * stride);
    return;
  }
#pragma unroll 1
  for (int p = 0; p < Packs; ++p) {
    const Elements index = first + p * stride;
    const auto pack = convert_pack<To>(gather_pack<Count>(source, index, piece.count).at);
    if (is_whole<Count>(index, piece.count))
      store_pack(pack, destination, index);
    else
      scatter_pack(pack, destination, index, piece.count);
  }
}

template <class From, class To, int Count, int Packs>
__global__ void __launch_bounds__(block_threads)
    copy_kernel(const __grid_constant__ CopyPiece piece) {
  copy_block<From, To, Count, Packs>(piece, blockIdx.x);
}

template <class From, class To, int Count, int Packs>
__global__ void __launch_bounds__(block_threads)
    copy_pieces_kernel(const CopyPiece* __restrict__ table, int pieces) {
  const int k =
      entry_of_block(pieces, blockIdx.x, [&](int piece) { return table[piece].first_block; });
  const CopyPiece piece = table[k];
  copy_block<From, To, Count, Packs>(piece, blockIdx.x - piece.first_block);
}

/// The two launches of one pair of types.
struct CopyFunctions {
  void (*one)(const CopyPiece& piece, cudaStream_t stream);
  void (*many)(const CopyPiece* table, int pieces, Elements blocks, cudaStream_t stream);
  Elements (*blocks)(const CopyPiece& piece);
};

template <class From, class To, int Packs = copy_packs<From, To>>
struct Copy {
  static constexpr int count = pack_elements<From, To>;
  static Elements blocks(const CopyPiece& piece) {
    return blocks_of<count, copy_packs_of_pieces>(piece.destination, sizeof(To), piece.count);
  }
  static void one(const CopyPiece& piece, cudaStream_t stream) {
    const Elements grid = blocks_of<count, Packs>(piece.destination, sizeof(To), piece.count);
    if (grid > 0)
      copy_kernel<From, To, count, Packs>
          <<<static_cast<unsigned>(grid), block_threads, 0, stream>>>(piece);
  }
  static void many(const CopyPiece* table, int pieces, Elements blocks, cudaStream_t stream) {
    copy_pieces_kernel<From, To, count, copy_packs_of_pieces>
        <<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(table, pieces);
  }
  static constexpr CopyFunctions functions{one, many, blocks};
};

/// From `From` to each floating type, in the order of DType; equal types copy bits elsewhere.
template <class From>
struct CopiesFrom {
  static constexpr CopyFunctions to[] = {
      Copy<From, double>::functions,     Copy<From, float>::functions,
      Copy<From, Bf16>::functions,       Copy<From, Half>::functions,
      Copy<From, Float8E4M3>::functions, Copy<From, Float8E5M2>::functions};
};

extern const CopyFunctions* const copies_from_wide[2];   // double, float
extern const CopyFunctions* const copies_from_16bit[2];  // bf16, fp16
extern const CopyFunctions* const copies_from_8bit[2];   // e4m3, e5m2

}  // namespace flatshard::cuda
