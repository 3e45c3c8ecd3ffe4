#include <flatshard/ops/step_control.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const StepSettings& settings) {
  detail::expect_not_negative("step", "max_grad_norm", settings.max_grad_norm);
}

}  // namespace flatshard
