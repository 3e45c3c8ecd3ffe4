// Copies from bf16 and fp16.
#include "copy.cuh"

namespace flatshard::cuda {
const CopyFunctions* const copies_from_16bit[] = {CopiesFrom<Bf16>::to, CopiesFrom<Half>::to};
}  // namespace flatshard::cuda
