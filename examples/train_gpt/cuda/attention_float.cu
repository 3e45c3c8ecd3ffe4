#include <flatshard/core/error.hpp>

#include "attention.cuh"

namespace train_gpt::gpu {

void check_attention(const AttentionShape& shape) {
  if (shape.head_width > most_head_width)
    throw flatshard::UsageError("train_gpt: attention on a GPU takes heads of at most " +
                                std::to_string(most_head_width) + " columns, not " +
                                std::to_string(shape.head_width));
}

TRAIN_GPT_INSTANTIATE(float)

}  // namespace train_gpt::gpu
