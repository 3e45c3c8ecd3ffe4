// Which copy moves which pair of dtypes.
#include <flatshard/core/error.hpp>

#include "copy.cuh"

namespace flatshard::cuda {
namespace {

/// A floating dtype of the same size, whose copy moves the same bits.
DType same_bits(DType dtype) {
  switch (size_of(dtype)) {
    case 8:
      return DType::Float64;
    case 4:
      return DType::Float32;
    case 2:
      return DType::BFloat16;
    default:
      return DType::Float8E4M3;
  }
}

const CopyFunctions& functions_for(DType from, DType to) {
  if (from == to) from = to = same_bits(from);
  FLATSHARD_EXPECTS(is_floating(from) && is_floating(to),
                    "CUDA kernels: " + std::string(name_of(from)) + " cannot be converted to " +
                        std::string(name_of(to)) + ": only floating-point dtypes are");
  const auto row = static_cast<std::size_t>(from);
  const CopyFunctions* const* rows[] = {copies_from_wide, copies_from_16bit, copies_from_8bit};
  return rows[row / 2][row % 2][static_cast<std::size_t>(to)];
}

}  // namespace

void launch_copy(const CopyPiece& piece, DType from, DType to, cudaStream_t stream) {
  functions_for(from, to).one(piece, stream);
}

void launch_copy_pieces(const CopyPiece* table, int pieces, Elements blocks, DType from, DType to,
                        cudaStream_t stream) {
  if (blocks > 0) functions_for(from, to).many(table, pieces, blocks, stream);
}

Elements blocks_of_copy(const CopyPiece& piece, DType from, DType to) {
  return functions_for(from, to).blocks(piece);
}

}  // namespace flatshard::cuda
