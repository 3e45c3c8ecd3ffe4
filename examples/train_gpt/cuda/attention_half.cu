#include "attention.cuh"

namespace train_gpt::gpu {

TRAIN_GPT_INSTANTIATE(flatshard::Half)

}  // namespace train_gpt::gpu
