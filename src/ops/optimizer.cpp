#include <flatshard/core/error.hpp>
#include <flatshard/ops/cuda_steps.hpp>
#include <flatshard/ops/optimizer.hpp>

#include <fmt/format.h>

namespace flatshard {

std::string to_string(const StepRow& row) {
  std::string text = fmt::format("master {}, gradient {}, state {}", name_of(row.master),
                                 name_of(row.gradient), name_of(row.state));
  if (row.writes_copy) text += fmt::format(", copy {}", name_of(row.copy));
  if (row.stochastic) text += ", stochastic rounding";
  return text;
}

HostStep Optimizer::host_step(const StepRow& row) const {
  const HostStep step = type_->host_step(row);
  FLATSHARD_EXPECTS(step != nullptr,
                    fmt::format("optimizer {}: no step is built for {}", name(), to_string(row)));
  return step;
}

CudaStep Optimizer::cuda_step(const StepRow& row) const {
  const CudaStep step = registered_cuda_step(*type_->type, row);
  FLATSHARD_EXPECTS(step != nullptr,
                    fmt::format("optimizer {}: no CUDA step is registered for {}; instantiate one "
                                "with <flatshard/cuda/step.cuh> in a .cu file",
                                name(), to_string(row)));
  return step;
}

namespace detail {

void throw_no_learning_rate(std::string_view optimizer) {
  throw UsageError(fmt::format("optimizer {} has no member lr, which GroupOptions::lr_factor "
                               "would multiply",
                               optimizer),
                   {__FILE__, __LINE__});
}

void throw_no_hyper_parameter(std::string_view optimizer, std::string_view name) {
  throw UsageError(fmt::format("optimizer {} publishes no hyper-parameter '{}'", optimizer, name),
                   {__FILE__, __LINE__});
}

void expect_keeps_zeros(bool keeps, std::string_view optimizer) {
  FLATSHARD_EXPECTS(keeps, fmt::format("optimizer {} does not leave an element at zero whose "
                                       "gradient and states are zero; padding would not stay zero",
                                       optimizer));
}

}  // namespace detail
}  // namespace flatshard
