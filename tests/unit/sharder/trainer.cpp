#include "trainer.hpp"

#include <flatshard/tensor/convert.hpp>

#include "typed_trainer.hpp"

namespace sharder_test {

std::string_view name_of(StrategyName strategy) {
  constexpr std::array<std::string_view, 7> names{
      "NoShard",     "ShardOptimizer",    "ShardGradOp",       "FullShard",
      "HybridShard", "HybridShardGradOp", "FullShardSecondary"};
  return names[static_cast<std::size_t>(strategy)];
}

std::string_view name_of(PrecisionName precision) {
  constexpr std::array<std::string_view, 12> names{
      "Fp64",          "Fp32",       "Bf16",           "Fp16",
      "Bf16Wide",      "Bf16Mixed",  "DeepSpeedBf16",  "Fp16Torch",
      "Fp16DeepSpeed", "Fp16Static", "Bf16Stochastic", "Bf16StochasticState"};
  return names[static_cast<std::size_t>(precision)];
}

double Values::get(Elements index) const {
  return with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    return to_double(reinterpret_cast<const Element*>(data)[index]);
  });
}

void Values::set(Elements index, double value) const {
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    reinterpret_cast<Element*>(data)[index] = from_double<Element>(value);
  });
}

std::unique_ptr<Trainer> make_trainer(StrategyName strategy, PrecisionName precision,
                                      Communicator& communicator, const Model& model,
                                      const Optimizer& optimizer, const Options& options) {
  std::span<const Maker> table = full_makers(precision);
  if (table.empty()) table = mixed_makers(precision);
  return table[static_cast<std::size_t>(strategy)](communicator, model, optimizer, options);
}

}  // namespace sharder_test
