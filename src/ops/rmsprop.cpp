#include <flatshard/ops/rmsprop.hpp>

#include "hyper_parameters.hpp"

namespace flatshard {
namespace {

template <bool HasMomentum, bool IsCentered>
void expect_in_range(const char* optimizer, const BasicRMSProp<HasMomentum, IsCentered>& rmsprop) {
  detail::expect_not_negative(optimizer, "lr", rmsprop.lr);
  detail::expect_share(optimizer, "alpha", rmsprop.alpha);
  detail::expect_positive_float(optimizer, "eps", rmsprop.eps);
  detail::expect_not_negative(optimizer, "weight_decay", rmsprop.weight_decay);
  if constexpr (HasMomentum) detail::expect_not_negative(optimizer, "momentum", rmsprop.momentum);
}

}  // namespace

void validate(const RMSProp& rmsprop) { expect_in_range("RMSProp", rmsprop); }
void validate(const RMSPropMomentum& rmsprop) { expect_in_range("RMSPropMomentum", rmsprop); }
void validate(const CenteredRMSProp& rmsprop) { expect_in_range("CenteredRMSProp", rmsprop); }
void validate(const CenteredRMSPropMomentum& rmsprop) {
  expect_in_range("CenteredRMSPropMomentum", rmsprop);
}

}  // namespace flatshard
