// Stochastic rounding is for bf16 masters.
// expect: stochastic rounding without a bf16 master
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = float;
#ifdef BAD
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Stochastic;
#else
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
#endif
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

static_assert(
    flatshard::CheckedRules<flatshard::strategy::FullShard, Own, flatshard::offload::None>::value);
