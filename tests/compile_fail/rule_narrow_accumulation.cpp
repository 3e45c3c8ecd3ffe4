// Gradients accumulate in no less than they are reduced to.
// expect: gradients accumulate in a narrower dtype than they are reduced to
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  using master = float;
  using compute = flatshard::Bf16;
  using reduce = float;
#ifdef BAD
  using accumulate = flatshard::Bf16;
#else
  using accumulate = float;
#endif
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

static_assert(
    flatshard::CheckedRules<flatshard::strategy::FullShard, Own, flatshard::offload::None>::value);
