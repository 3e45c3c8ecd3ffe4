#include <flatshard/ops/adagrad.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {

void validate(const Adagrad& adagrad) {
  detail::expect_not_negative("Adagrad", "lr", adagrad.lr);
  detail::expect_not_negative("Adagrad", "lr_decay", adagrad.lr_decay);
  detail::expect_not_negative("Adagrad", "weight_decay", adagrad.weight_decay);
  detail::expect_positive_float("Adagrad", "eps", adagrad.eps);
}

}  // namespace flatshard
