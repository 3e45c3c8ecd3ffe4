// What one step decides from the gradients' norm: whether to apply it, by what to multiply the
// gradients, how the loss scale moves. Pure arithmetic on a few numbers, run where they lie.
#pragma once

#include <flatshard/core/exact.hpp>
#include <flatshard/ops/loss_scale.hpp>
#include <flatshard/ops/step.hpp>

namespace flatshard {

/// Without loss scaling, what happens when a gradient is infinite or NaN. (With it the step is
/// skipped and the scale drops.)
enum class OnNonFinite : std::int32_t { Error, Skip, Apply };

/// Which norm is measured, reported and clipped.
enum class NormKind : std::int32_t { Two, Infinity };

/// What was an error in a step.
enum class StepError : std::int32_t {
  None,
  NonFiniteGradient,  // and OnNonFinite::Error
  ScaleAtMinimum,     // overflow, and the loss scale cannot drop any more
  BadDivisor          // the gradient divisor is not a finite number above zero
};

/// What is the same in every step.
struct StepSettings {
  double max_grad_norm = 0;                       // 0: no clipping
  NormKind norm = NormKind::Two;                  // measured, reported, clipped
  OnNonFinite on_nonfinite = OnNonFinite::Error;  // without loss scaling
  bool scales_loss = false;  // true: StepControl::scaler decides; false: its scale stays 1
};

/// What is known of the summed gradients of all ranks.
struct GradientSummary {
  double measure;       // NormKind::Two: S, the sum of squares; Infinity: the largest magnitude
  std::int32_t finite;  // 0: some gradient is infinite or NaN
  double divisor;       // of the mean: contributions, tokens, ...
};

/// What a step found and did; equal on all ranks.
struct StepReport {
  std::int64_t step = 0;              // number of this step, 1 for the first; skipped ones count
  bool skipped = false;               // nothing was changed but the loss scale
  double grad_norm = 0;               // of the mean gradient, before clipping
  double clip_coefficient = 1;        // what clipping multiplied it by
  double scale_used = 1;              // loss scale of this step's backward
  double scale_next = 1;              // of the next step's
  StepError error = StepError::None;  // raised by PendingReport::wait
  friend constexpr bool operator==(const StepReport&, const StepReport&) = default;
};

/// Lives in the device's memory from step to step. `scalars` is what this step's update kernels
/// read, `loss_scale` what the next backward reads.
struct StepControl {
  StepScalars scalars{1.0, 0};                  // of this step
  LossScaler scaler = LossScaler::constant(1);  // moves after the step
  float loss_scale = 1;                         // == scaler.scale()
  std::int64_t steps = 0;                       // concluded so far
  StepReport report;                            // of the last one
};

/// A control at its beginning.
constexpr StepControl make_step_control(const LossScaler& scaler) {
  StepControl control;
  control.scaler = scaler;
  control.loss_scale = scaler.scale();
  control.report.scale_next = static_cast<double>(scaler.scale());
  return control;
}

namespace detail {

FLATSHARD_INLINE FLATSHARD_HOST_DEVICE bool is_finite(double value) { return value - value == 0; }

FLATSHARD_INLINE FLATSHARD_HOST_DEVICE bool is_divisor(double value) {
  return value > 0 && is_finite(value);
}

/// min(1, max_norm / (norm + 1e-6)), as torch clips: NaN stays NaN, an infinite norm gives 0.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double clip_coefficient(double max_norm, double norm) {
  if (max_norm == 0) return 1;
  const double ratio = exact::div(max_norm, exact::add(norm, 1e-6));
  return ratio >= 1 ? 1 : ratio;
}

FLATSHARD_INLINE FLATSHARD_HOST_DEVICE StepError error_of(const StepSettings& settings,
                                                          const GradientSummary& gradient,
                                                          ScaleEvent event) {
  if (!is_divisor(gradient.divisor)) return StepError::BadDivisor;
  if (event == ScaleEvent::AtMinimum) return StepError::ScaleAtMinimum;
  const bool is_error = settings.on_nonfinite == OnNonFinite::Error && !settings.scales_loss;
  return gradient.finite == 0 && is_error ? StepError::NonFiniteGradient : StepError::None;
}

FLATSHARD_INLINE FLATSHARD_HOST_DEVICE bool applies(const StepSettings& settings,
                                                    const GradientSummary& gradient,
                                                    StepError error) {
  if (error != StepError::None) return false;
  const bool goes_on = settings.on_nonfinite == OnNonFinite::Apply && !settings.scales_loss;
  return gradient.finite != 0 || goes_on;
}

}  // namespace detail

/// Decides one step; call it once per step, after the norm and before the updates.
///   grad_norm == sqrt(S) / (divisor * scale), or largest / (divisor * scale)
///   clip_coefficient == min(1, max_grad_norm / (grad_norm + 1e-6))
///   scalars.coefficient == clip_coefficient / (divisor * scale), in double
///   times[k] += 1 where takes_part[k] != 0, if the step applies
/// with the scale that backward used; only then does the scaler move. A skipped step changes the
/// scaler's state and the step count, nothing else, and its scalars hold no infinity or NaN.
/// takes_part == nullptr: all `flats` do.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE void conclude_step(
    StepControl& control, const StepSettings& settings, const GradientSummary& gradient,
    std::int64_t* times, const std::int64_t* takes_part, std::int64_t flats) {
  const double scale = static_cast<double>(control.scaler.scale());
  const double divisor = exact::mul(gradient.divisor, scale);
  const bool is_square = settings.norm == NormKind::Two;
  const double magnitude = is_square ? exact::sqrt(gradient.measure) : gradient.measure;
  const double norm = exact::div(magnitude, divisor);
  const double clip = detail::clip_coefficient(settings.max_grad_norm, norm);

  const bool moves = settings.scales_loss && detail::is_divisor(gradient.divisor);
  const ScaleEvent event = moves ? control.scaler.update(gradient.finite != 0) : ScaleEvent::Kept;
  const StepError error = detail::error_of(settings, gradient, event);
  const bool apply = detail::applies(settings, gradient, error);

  control.scalars = {apply ? exact::div(clip, divisor) : 0.0, apply ? 1 : 0};
  for (std::int64_t k = 0; k < flats; ++k)
    if (apply && (takes_part == nullptr || takes_part[k] != 0)) ++times[k];
  control.loss_scale = control.scaler.scale();
  control.report = {
      ++control.steps, !apply, norm, clip, scale, static_cast<double>(control.loss_scale), error};
}

/// Throws UsageError naming the setting that is out of its range.
void validate(const StepSettings& settings);

static_assert(__is_trivially_copyable(StepControl));

}  // namespace flatshard
