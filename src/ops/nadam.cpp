#include <flatshard/ops/nadam.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const NAdam& nadam) {
  detail::expect_not_negative("NAdam", "lr", nadam.lr);
  detail::expect_share("NAdam", "beta1", nadam.beta1);
  detail::expect_share("NAdam", "beta2", nadam.beta2);
  detail::expect_positive_float("NAdam", "eps", nadam.eps);
  detail::expect_not_negative("NAdam", "weight_decay", nadam.weight_decay);
  detail::expect_not_negative("NAdam", "momentum_decay", nadam.momentum_decay);
}

}  // namespace flatshard
