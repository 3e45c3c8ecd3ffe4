// The optimizer step is built for the dtypes.
// expect: no optimizer step is built for these dtypes
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
  using accumulate = float;
#ifdef BAD
  using state = flatshard::Bf16;
#else
  using state = float;
#endif
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

static_assert(
    flatshard::CheckedRules<flatshard::strategy::FullShard, Own, flatshard::offload::None>::value);
