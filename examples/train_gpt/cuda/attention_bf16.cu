#include "attention.cuh"

namespace train_gpt::gpu {

TRAIN_GPT_INSTANTIATE(flatshard::Bf16)

}  // namespace train_gpt::gpu
