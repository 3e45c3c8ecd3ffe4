#include "typed_trainer.hpp"

namespace sharder_test {

std::span<const Maker> mixed_makers(PrecisionName precision) {
  switch (precision) {
    case PrecisionName::Bf16Mixed:
      return makers<precision::Bf16Mixed>;
    case PrecisionName::DeepSpeedBf16:
      return makers<precision::DeepSpeedBf16>;
    case PrecisionName::Fp16Torch:
      return makers<precision::Fp16Mixed>;
    case PrecisionName::Fp16DeepSpeed:
      return makers<precision::Fp16MixedScaling<LossScaling::DeepSpeed>>;
    case PrecisionName::Fp16Static:
      return makers<precision::Fp16MixedScaling<LossScaling::Static>>;
    case PrecisionName::Bf16Stochastic:
      return makers<precision::Bf16Stochastic>;
    case PrecisionName::Bf16StochasticState:
      return makers<precision::Bf16StochasticState<Bf16>>;
    default:
      return {};
  }
}

}  // namespace sharder_test
