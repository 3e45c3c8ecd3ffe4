// What the rules forbid is in tests/compile_fail.
#include <flatshard/policy/rules.hpp>

#include <doctest/doctest.h>

namespace flatshard {
namespace {

template <class Strategy, class... Precisions>
constexpr bool allowed_with = (CheckedRules<Strategy, Precisions, offload::None>::value && ...);

template <class Strategy>
constexpr bool allowed =
    allowed_with<Strategy, precision::Full<double>, precision::Full<float>, precision::Full<Bf16>,
                 precision::Full<Bf16, float>, precision::Full<Bf16, Bf16, float>,
                 precision::Full<Bf16, float, float>, precision::Full<Half>,
                 precision::Full<Half, float>, precision::Full<Half, Half, float>,
                 precision::Full<Half, float, float>, precision::Bf16Mixed,
                 precision::DeepSpeedBf16, precision::Fp16Mixed,
                 precision::Fp16MixedScaling<LossScaling::DeepSpeed, float>,
                 precision::Fp16MixedScaling<LossScaling::Static>, precision::Bf16Stochastic,
                 precision::Bf16StochasticState<Bf16>>;

}  // namespace

TEST_CASE("every built-in strategy goes with every built-in precision") {
  CHECK(allowed<strategy::NoShard>);
  CHECK(allowed<strategy::ShardOptimizer>);
  CHECK(allowed<strategy::ShardGradOp>);
  CHECK(allowed<strategy::FullShard>);
  CHECK(allowed<strategy::HybridShard>);
  CHECK(allowed<strategy::HybridShardGradOp>);
  CHECK(allowed<strategy::FullShardSecondary>);
}

TEST_CASE("a dtype can hold itself and narrower ones, not another of its size") {
  CHECK(detail::can_hold(DType::Float32, DType::BFloat16));
  CHECK(detail::can_hold(DType::Float16, DType::Float16));
  CHECK_FALSE(detail::can_hold(DType::BFloat16, DType::Float16));
  CHECK_FALSE(detail::can_hold(DType::Float16, DType::Float32));
}

TEST_CASE("rows of step kernels") {
  const DType f32 = DType::Float32;
  CHECK(detail::is_built({f32, f32, f32, DType::BFloat16, true, false}, StepRows{}));
  CHECK_FALSE(detail::is_built({f32, DType::BFloat16, f32, f32, false, false}, StepRows{}));
}

}  // namespace flatshard
