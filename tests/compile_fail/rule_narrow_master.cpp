// Masters are at least as wide as what is made of them.
// expect: the master dtype is narrower than the compute dtype
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
#ifdef BAD
  using master = flatshard::Bf16;
#else
  using master = float;
#endif
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

static_assert(
    flatshard::CheckedRules<flatshard::strategy::FullShard, Own, flatshard::offload::None>::value);
