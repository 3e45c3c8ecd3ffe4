#include "typed_trainer.hpp"

namespace sharder_test {

std::span<const Maker> full_makers(PrecisionName precision) {
  switch (precision) {
    case PrecisionName::Fp64:
      return makers<precision::Full<double>>;
    case PrecisionName::Fp32:
      return makers<precision::Full<float>>;
    case PrecisionName::Bf16:
      return makers<precision::Full<Bf16>>;
    case PrecisionName::Fp16:
      return makers<precision::Full<Half>>;
    case PrecisionName::Bf16Wide:
      return makers<precision::Full<Bf16, float, float>>;
    default:
      return {};
  }
}

}  // namespace sharder_test
