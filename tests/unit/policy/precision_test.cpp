#include <flatshard/policy/precision.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

namespace flatshard {
namespace {

using namespace precision;

constexpr DType f64 = DType::Float64;
constexpr DType f32 = DType::Float32;
constexpr DType b16 = DType::BFloat16;
constexpr DType f16 = DType::Float16;

template <class Policy>
bool has_dtypes(DType master, DType compute, DType reduce, DType accumulate, DType state) {
  const PrecisionTraits roles = precision_traits<Policy>();
  return roles.master == master && roles.compute == compute && roles.reduce == reduce &&
         roles.accumulate == accumulate && roles.state == state;
}
template <class Policy>
bool has_manner(Rounding rounding, LossScaling scaling) {
  return precision_traits<Policy>().rounding == rounding &&
         precision_traits<Policy>().loss_scaling == scaling;
}

template <class Master, class State = float>
struct Own {
  using master = Master;
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = State;
  static constexpr Rounding rounding = Rounding::Nearest;
  static constexpr LossScaling loss_scaling = LossScaling::Off;
};

struct Nothing {};
struct WrongManner : Own<float> {
  static constexpr bool rounding = true;
  static constexpr int loss_scaling = 0;
};

}  // namespace

TEST_CASE("each precision names the dtypes of the precision table") {
  CHECK(has_dtypes<Full<double>>(f64, f64, f64, f64, f64));
  CHECK(has_dtypes<Full<float>>(f32, f32, f32, f32, f32));
  CHECK(has_dtypes<Full<Bf16>>(b16, b16, b16, b16, b16));
  CHECK(has_dtypes<Full<Half>>(f16, f16, f16, f16, f16));
  CHECK(has_dtypes<Bf16Mixed>(f32, b16, f32, f32, f32));
  CHECK(has_dtypes<DeepSpeedBf16>(f32, b16, b16, f32, f32));
  CHECK(has_dtypes<Fp16Mixed>(f32, f16, f16, f32, f32));
  CHECK(has_dtypes<Bf16Stochastic>(b16, b16, f32, f32, f32));
}

TEST_CASE("options of precisions change one role") {
  CHECK(has_dtypes<Full<Bf16, float>>(b16, b16, b16, b16, f32));
  CHECK(has_dtypes<Full<Half, Half, float>>(f16, f16, f16, f32, f16));
  CHECK(has_dtypes<Bf16MixedReducing<Bf16>>(f32, b16, b16, f32, f32));
  CHECK(has_dtypes<Fp16MixedScaling<LossScaling::Torch, float>>(f32, f16, f32, f32, f32));
  CHECK(has_dtypes<Bf16StochasticState<Bf16>>(b16, b16, f32, f32, b16));
}

TEST_CASE("only stochastic bf16 rounds stochastically, only mixed fp16 scales the loss") {
  CHECK(has_manner<Full<float>>(Rounding::Nearest, LossScaling::Off));
  CHECK(has_manner<Full<Half>>(Rounding::Nearest, LossScaling::Off));
  CHECK(has_manner<Bf16Mixed>(Rounding::Nearest, LossScaling::Off));
  CHECK(has_manner<DeepSpeedBf16>(Rounding::Nearest, LossScaling::Off));
  CHECK(has_manner<Bf16Stochastic>(Rounding::Stochastic, LossScaling::Off));
  CHECK(has_manner<Fp16Mixed>(Rounding::Nearest, LossScaling::Torch));
  CHECK(has_manner<Fp16MixedScaling<LossScaling::DeepSpeed>>(Rounding::Nearest,
                                                             LossScaling::DeepSpeed));
  CHECK(has_manner<Fp16MixedScaling<LossScaling::Static>>(Rounding::Nearest, LossScaling::Static));
}

TEST_CASE("policies are empty") {
  CHECK(std::is_empty_v<Full<float>>);
  CHECK(std::is_empty_v<Bf16Mixed>);
  CHECK(std::is_empty_v<Fp16Mixed>);
  CHECK(std::is_empty_v<Bf16Stochastic>);
}

TEST_CASE("roles are floating dtypes of the table") {
  CHECK(PrecisionPolicy<Own<float>>);
  CHECK(HasAFloatingDType<Float8E4M3>);
  CHECK_FALSE(HasADType<std::string>);
  CHECK_FALSE(HasAFloatingDType<long double>);
  CHECK_FALSE(HasAFloatingDType<std::int32_t>);
  CHECK_FALSE(PrecisionPolicy<Own<std::string>>);
  CHECK_FALSE(PrecisionPolicy<Own<std::int64_t>>);
  CHECK_FALSE(PrecisionPolicy<Own<float, bool>>);
}

TEST_CASE("what misses an answer, or gives one of another type, is no precision") {
  CHECK_FALSE(NamesItsMasterType<Nothing>);
  CHECK_FALSE(NamesItsComputeType<Nothing>);
  CHECK_FALSE(NamesItsReduceType<Nothing>);
  CHECK_FALSE(NamesItsAccumulateType<Nothing>);
  CHECK_FALSE(NamesItsStateType<Nothing>);
  CHECK_FALSE(SaysHowItRounds<Nothing>);
  CHECK_FALSE(SaysHowItScalesTheLoss<Nothing>);
  CHECK_FALSE(SaysHowItRounds<WrongManner>);
  CHECK_FALSE(SaysHowItScalesTheLoss<WrongManner>);
  CHECK_FALSE(PrecisionPolicy<WrongManner>);
}

TEST_CASE("the optimizer step reads accumulated gradients and writes a copy where dtypes differ") {
  CHECK(step_row(precision_traits<Full<float>>()) == StepRow{f32, f32, f32, f32, false, false});
  CHECK(step_row(precision_traits<Fp16Mixed>()) == StepRow{f32, f32, f32, f16, true, false});
  CHECK(step_row(precision_traits<Bf16Stochastic>()) == StepRow{b16, f32, f32, b16, false, true});
  CHECK(step_row({f32, b16, f32, f32, f32, Rounding::Stochastic}) ==
        StepRow{f32, f32, f32, b16, true, false});
}

}  // namespace flatshard
