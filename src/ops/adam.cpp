#include <flatshard/ops/adam.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const Adam& adam) {
  detail::expect_not_negative("Adam", "lr", adam.lr);
  detail::expect_share("Adam", "beta1", adam.beta1);
  detail::expect_share("Adam", "beta2", adam.beta2);
  detail::expect_positive_float("Adam", "eps", adam.eps);
  detail::expect_not_negative("Adam", "weight_decay", adam.weight_decay);
}

}  // namespace flatshard
