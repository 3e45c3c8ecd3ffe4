#include <flatshard/core/error.hpp>
#include <flatshard/ops/step_control.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace flatshard {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Concluded {
  StepControl control;
  std::vector<std::int64_t> times;
};

Concluded conclude(const StepSettings& settings, const GradientSummary& gradient,
                   const LossScaler& scaler = LossScaler::constant(1)) {
  Concluded concluded{make_step_control(scaler), {0, 41}};
  const std::int64_t takes_part[] = {0, 1};
  conclude_step(concluded.control, settings, gradient, concluded.times.data(), takes_part, 2);
  return concluded;
}

TEST_CASE("the norm is the mean gradient's, and without clipping the mean is the coefficient") {
  const auto [control, times] = conclude({}, {144, 1, 4});
  CHECK(control.report == StepReport{1, false, 3, 1, 1, 1, StepError::None});
  CHECK(control.scalars.coefficient == 0.25);
  CHECK(control.scalars.apply == 1);
  CHECK(times == std::vector<std::int64_t>{0, 42});
}

TEST_CASE("clipping above the largest norm, none below") {
  StepSettings settings;
  settings.max_grad_norm = 1.5;
  const auto clipped = conclude(settings, {144, 1, 4}).control;
  CHECK(clipped.report.grad_norm == 3);
  CHECK(clipped.report.clip_coefficient == 1.5 / (3 + 1e-6));
  CHECK(clipped.scalars.coefficient == 1.5 / (3 + 1e-6) / 4);
  settings.max_grad_norm = 3.1;
  CHECK(conclude(settings, {144, 1, 4}).control.report.clip_coefficient == 1);
  CHECK(conclude(settings, {0, 1, 4}).control.scalars.coefficient == 0.25);
}

TEST_CASE("the infinity norm is a magnitude, not a sum of squares") {
  StepSettings settings;
  settings.norm = NormKind::Infinity;
  CHECK(conclude(settings, {144, 1, 4}).control.report.grad_norm == 36);
}

TEST_CASE("gradients are unscaled by the scale of their backward; then the scaler moves") {
  StepSettings settings;
  settings.scales_loss = true;
  const auto control = conclude(settings, {256, 1, 2}, LossScaler::torch(8, 2, 0.5, 1)).control;
  CHECK(control.report == StepReport{1, false, 1, 1, 8, 16, StepError::None});
  CHECK(control.scalars.coefficient == 1.0 / 16);
  CHECK(control.loss_scale == 16);
  CHECK(control.scaler.scale() == 16);
}

TEST_CASE("with loss scaling an overflow skips the step and drops the scale") {
  for (const double measure : {infinity, std::nan("")}) {
    StepSettings settings;
    settings.scales_loss = true;
    settings.max_grad_norm = 1;
    settings.on_nonfinite = OnNonFinite::Apply;  // not asked
    const auto [control, times] = conclude(settings, {measure, 0, 2}, LossScaler::torch(8));
    CHECK(control.report.skipped);
    CHECK(control.report.scale_used == 8);
    CHECK(control.report.scale_next == 4);
    CHECK(control.report.error == StepError::None);
    CHECK(control.scalars.apply == 0);
    CHECK(control.scalars.coefficient == 0);
    CHECK(times == std::vector<std::int64_t>{0, 41});
    CHECK(control.steps == 1);
  }
}

TEST_CASE("overflow at the minimum scale is an error") {
  StepSettings settings;
  settings.scales_loss = true;
  const auto control =
      conclude(settings, {infinity, 0, 1}, LossScaler::deepspeed(1, 10, 1, 1)).control;
  CHECK(control.report.error == StepError::ScaleAtMinimum);
  CHECK(control.scalars.apply == 0);
}

TEST_CASE("a constant scale skips, and stays") {
  StepSettings settings;
  settings.scales_loss = true;
  const auto control = conclude(settings, {infinity, 0, 1}, LossScaler::constant(4)).control;
  CHECK(control.report.skipped);
  CHECK(control.report.scale_next == 4);
  CHECK(control.report.error == StepError::None);
}

TEST_CASE("without loss scaling the policy decides about what is not finite") {
  StepSettings settings;
  CHECK(conclude(settings, {infinity, 0, 1}).control.report.error == StepError::NonFiniteGradient);
  CHECK(conclude(settings, {infinity, 0, 1}).control.scalars.apply == 0);
  settings.on_nonfinite = OnNonFinite::Skip;
  const auto skipped = conclude(settings, {std::nan(""), 0, 1});
  CHECK(skipped.control.report.skipped);
  CHECK(skipped.control.report.error == StepError::None);
  CHECK(skipped.times[1] == 41);
  settings.on_nonfinite = OnNonFinite::Apply;
  const auto applied = conclude(settings, {infinity, 0, 2});
  CHECK(!applied.control.report.skipped);
  CHECK(applied.control.scalars.coefficient == 0.5);
  CHECK(applied.times[1] == 42);
}

TEST_CASE("applied with clipping: infinity clips to zero, NaN stays NaN, as in torch") {
  StepSettings settings;
  settings.on_nonfinite = OnNonFinite::Apply;
  settings.max_grad_norm = 1;
  CHECK(conclude(settings, {infinity, 0, 1}).control.scalars.coefficient == 0);
  CHECK(std::isnan(conclude(settings, {std::nan(""), 0, 1}).control.scalars.coefficient));
}

TEST_CASE("fp64 gradients may be finite while the sum of their squares is not") {
  const auto control = conclude({}, {infinity, 1, 2}).control;
  CHECK(!control.report.skipped);
  CHECK(control.report.grad_norm == infinity);
  CHECK(control.scalars.coefficient == 0.5);
}

TEST_CASE("an impossible divisor is an error and moves no scale") {
  StepSettings settings;
  settings.scales_loss = true;
  for (const double divisor : {0.0, -1.0, infinity, std::nan("")}) {
    const auto [control, times] =
        conclude(settings, {4, 1, divisor}, LossScaler::torch(8, 2, 0.5, 1));
    CHECK(control.report.error == StepError::BadDivisor);
    CHECK(control.report.scale_next == 8);
    CHECK(control.scalars.apply == 0);
    CHECK(times[1] == 41);
  }
}

TEST_CASE("steps are counted, skipped ones too; all flats take part when none is named") {
  StepControl control = make_step_control(LossScaler::constant(1));
  StepSettings settings;
  settings.on_nonfinite = OnNonFinite::Skip;
  std::int64_t times[] = {0, 5, 9};
  conclude_step(control, settings, {1, 1, 1}, times, nullptr, 3);
  conclude_step(control, settings, {infinity, 0, 1}, times, nullptr, 3);
  conclude_step(control, settings, {1, 1, 1}, times, nullptr, 3);
  CHECK(control.report.step == 3);
  CHECK(times[0] == 2);
  CHECK(times[2] == 11);
}

TEST_CASE("settings out of range are refused") {
  StepSettings settings;
  validate(settings);
  settings.max_grad_norm = -1;
  CHECK_THROWS_AS(validate(settings), UsageError);
  settings.max_grad_norm = std::nan("");
  CHECK_THROWS_AS(validate(settings), UsageError);
}

}  // namespace
}  // namespace flatshard
