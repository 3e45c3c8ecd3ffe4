#include <flatshard/ops/amsgrad.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const AMSGrad& amsgrad) {
  detail::expect_not_negative("AMSGrad", "lr", amsgrad.lr);
  detail::expect_share("AMSGrad", "beta1", amsgrad.beta1);
  detail::expect_share("AMSGrad", "beta2", amsgrad.beta2);
  detail::expect_positive_float("AMSGrad", "eps", amsgrad.eps);
  detail::expect_not_negative("AMSGrad", "weight_decay", amsgrad.weight_decay);
}

}  // namespace flatshard
