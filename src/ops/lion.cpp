#include <flatshard/ops/lion.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const Lion& lion) {
  detail::expect_not_negative("Lion", "lr", lion.lr);
  detail::expect_share("Lion", "beta1", lion.beta1);
  detail::expect_share("Lion", "beta2", lion.beta2);
  detail::expect_not_negative("Lion", "weight_decay", lion.weight_decay);
}

}  // namespace flatshard
