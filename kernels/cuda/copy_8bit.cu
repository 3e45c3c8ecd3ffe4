// Copies from the fp8 formats.
#include "copy.cuh"

namespace flatshard::cuda {
const CopyFunctions* const copies_from_8bit[] = {CopiesFrom<Float8E4M3>::to,
                                                 CopiesFrom<Float8E5M2>::to};
}  // namespace flatshard::cuda
