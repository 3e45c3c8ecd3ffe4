#include <flatshard/ops/adamw.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const AdamW& adamw) {
  detail::expect_not_negative("AdamW", "lr", adamw.lr);
  detail::expect_share("AdamW", "beta1", adamw.beta1);
  detail::expect_share("AdamW", "beta2", adamw.beta2);
  detail::expect_positive_float("AdamW", "eps", adamw.eps);
  detail::expect_not_negative("AdamW", "weight_decay", adamw.weight_decay);
}

}  // namespace flatshard
