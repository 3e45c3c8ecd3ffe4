// Copies from fp64 and fp32.
#include "copy.cuh"

namespace flatshard::cuda {
const CopyFunctions* const copies_from_wide[] = {CopiesFrom<double>::to, CopiesFrom<float>::to};
}  // namespace flatshard::cuda
