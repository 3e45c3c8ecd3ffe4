#pragma once

#include <flatshard/policy/precision.hpp>

#include "option_error.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// Refuses a --reduce-dtype that the precision does not have.
inline bool reduces_to(const Options& options, flatshard::DType standard, flatshard::DType other) {
  const flatshard::DType asked = options.reduce_dtype.value_or(standard);
  if (asked == standard) return false;
  if (asked == other) return true;
  std::string names{flatshard::name_of(standard)};
  if (other != standard) names += " or " + std::string(flatshard::name_of(other));
  throw OptionError("--precision " + name_of(options.precision) + " reduces gradients to " + names +
                    ", so --reduce-dtype cannot be " + std::string(flatshard::name_of(asked)));
}

template <class Reduce, class Function>
void with_fp16_mixed(const Options& options, const Function& function) {
  using flatshard::LossScaling;
  using flatshard::precision::Fp16MixedScaling;
  switch (options.scaler.value_or(Scaler::torch)) {
    case Scaler::torch:
      return function(trainer_type<Fp16MixedScaling<LossScaling::Torch, Reduce>>(options.strategy));
    case Scaler::deepspeed:
      return function(
          trainer_type<Fp16MixedScaling<LossScaling::DeepSpeed, Reduce>>(options.strategy));
    case Scaler::constant:
      return function(
          trainer_type<Fp16MixedScaling<LossScaling::Static, Reduce>>(options.strategy));
  }
}

/// function(trainer type) for what the options name.
template <class Function>
void with_trainer_type(const Options& options, const Function& function) {
  using flatshard::DType;
  namespace precision = flatshard::precision;
  const Strategy strategy = options.strategy;
  const auto only = [&](DType dtype) { reduces_to(options, dtype, dtype); };
  switch (options.precision) {
    case Precision::fp32:
      only(DType::Float32);
      return function(trainer_type<precision::Full<float>>(strategy));
    case Precision::fp64:
      only(DType::Float64);
      return function(trainer_type<precision::Full<double>>(strategy));
    case Precision::bf16:
      only(DType::BFloat16);
      return function(trainer_type<precision::Full<flatshard::Bf16>>(strategy));
    case Precision::fp16:
      only(DType::Float16);
      return function(trainer_type<precision::Full<flatshard::Half>>(strategy));
    case Precision::bf16_mixed:
      if (reduces_to(options, DType::Float32, DType::BFloat16))
        return function(trainer_type<precision::DeepSpeedBf16>(strategy));
      return function(trainer_type<precision::Bf16Mixed>(strategy));
    case Precision::deepspeed_bf16:
      if (reduces_to(options, DType::BFloat16, DType::Float32))
        return function(trainer_type<precision::Bf16Mixed>(strategy));
      return function(trainer_type<precision::DeepSpeedBf16>(strategy));
    case Precision::fp16_mixed:
      if (reduces_to(options, DType::Float16, DType::Float32))
        return with_fp16_mixed<float>(options, function);
      return with_fp16_mixed<flatshard::Half>(options, function);
    case Precision::bf16_stochastic:
      only(DType::Float32);
      return function(trainer_type<precision::Bf16Stochastic>(strategy));
  }
}

}  // namespace train_gpt
