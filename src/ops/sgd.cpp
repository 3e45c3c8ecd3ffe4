#include <flatshard/ops/sgd.hpp>

#include "hyper_parameters.hpp"

#include <fmt/format.h>

namespace flatshard {

void validate(const SGD& sgd) {
  detail::expect_not_negative("SGD", "lr", sgd.lr);
  detail::expect_not_negative("SGD", "momentum", sgd.momentum);
  detail::expect_not_negative("SGD", "weight_decay", sgd.weight_decay);
  FLATSHARD_EXPECTS(
      std::isfinite(sgd.dampening) && sgd.dampening <= 1,
      fmt::format("SGD: dampening is {}; it must be finite and at most 1", sgd.dampening));
  FLATSHARD_EXPECTS(!sgd.nesterov || (sgd.momentum > 0 && sgd.dampening == 0),
                    fmt::format("SGD: nesterov needs momentum above 0 and no dampening; momentum "
                                "is {}, dampening is {}",
                                sgd.momentum, sgd.dampening));
}

}  // namespace flatshard
