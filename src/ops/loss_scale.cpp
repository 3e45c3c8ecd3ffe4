#include <flatshard/ops/loss_scale.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {
namespace {

void expect(bool holds, std::string_view name, double value, std::string_view range) {
  FLATSHARD_EXPECTS(holds, detail::range_message("loss scale", name, value, range));
}

bool is_positive_float(double value) {
  const auto rounded = static_cast<float>(value);
  return std::isfinite(rounded) && rounded > 0;
}

}  // namespace

void validate(const ScaleSettings& settings) {
  expect(is_positive_float(settings.initial), "initial", settings.initial,
         "above 0 and finite, as a float");
  if (settings.rule == ScaleRule::Constant) return;
  expect(std::isfinite(settings.growth) && settings.growth > 1, "growth", settings.growth,
         "finite and above 1");
  expect(settings.backoff > 0 && settings.backoff < 1, "backoff", settings.backoff,
         "above 0 and below 1");
  expect(settings.interval >= 1, "interval", static_cast<double>(settings.interval), "at least 1");
  expect(settings.hysteresis >= 1, "hysteresis", static_cast<double>(settings.hysteresis),
         "at least 1");
  expect(is_positive_float(settings.minimum) && settings.minimum <= settings.initial, "minimum",
         settings.minimum, "above 0, as a float, and at most the initial scale");
}

}  // namespace flatshard
