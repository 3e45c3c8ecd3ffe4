// The decision about one step as a kernel: reads the measured gradients from device memory.
#pragma once

#include <flatshard/ops/step_control.hpp>

namespace flatshard {

/// Arguments of KernelTable::conclude; every pointer is to device memory.
struct ConcludeArguments {
  StepControl* control;            // read and written
  StepSettings settings;           // of all steps
  const double* measure;           // sum of squares or largest magnitude; null: 0
  const double* largest;           // largest magnitude, where it alone tells whether all are finite
  double divisor;                  // of the mean
  const double* device_divisor;    // the same from device memory; null: `divisor`
  std::int64_t* times;             // (flats) time steps
  const std::int64_t* takes_part;  // (flats) 0: not updated; null: all are
  std::int64_t flats;              // length of the two before
  StepReport* report;              // where the report is kept; null: nowhere
};

/// conclude_step on what the arguments point to.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE void conclude(const ConcludeArguments& arguments) {
  GradientSummary gradient{};
  gradient.measure = arguments.measure == nullptr ? 0.0 : *arguments.measure;
  const double witness = arguments.largest == nullptr ? gradient.measure : *arguments.largest;
  gradient.finite = detail::is_finite(witness) ? 1 : 0;
  gradient.divisor =
      arguments.device_divisor == nullptr ? arguments.divisor : *arguments.device_divisor;
  conclude_step(*arguments.control, arguments.settings, gradient, arguments.times,
                arguments.takes_part, arguments.flats);
  if (arguments.report != nullptr) *arguments.report = arguments.control->report;
}

/// NaN if either is.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double larger_magnitude(double left, double right) {
  if (left != left) return left;
  return right > left || right != right ? right : left;
}

}  // namespace flatshard
