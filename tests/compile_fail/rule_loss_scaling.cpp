// Loss scaling is for fp16.
// expect: loss scaling without fp16 compute
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
#ifdef BAD
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Torch;
#else
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
#endif
};

static_assert(
    flatshard::CheckedRules<flatshard::strategy::FullShard, Own, flatshard::offload::None>::value);
