// The parameter lists that multi-tensor kernels are measured on.
#pragma once

#include <flatshard/core/types.hpp>

#include <vector>

namespace flatshard_bench {

/// Elements of the tensors of a GPT-2: embeddings, `layers` blocks of width `width`, last norm.
inline std::vector<flatshard::Elements> gpt2(int layers, flatshard::Elements width) {
  std::vector<flatshard::Elements> tensors{50257 * width, 1024 * width};
  for (int layer = 0; layer < layers; ++layer)
    for (const flatshard::Elements elements :
         {width, width, 3 * width * width, 3 * width, width * width, width, width, width,
          4 * width * width, 4 * width, 4 * width * width, width})
      tensors.push_back(elements);
  tensors.push_back(width);
  tensors.push_back(width);
  return tensors;
}

}  // namespace flatshard_bench
