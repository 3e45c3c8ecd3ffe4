// A precision names its state type.
// expect: NamesItsStateType
// expect: state
#include <flatshard/policy/precision.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
  using accumulate = float;
#ifndef BAD
  using state = float;
#endif
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
