// A precision names its compute type.
// expect: NamesItsComputeType
// expect: compute
#include <flatshard/policy/precision.hpp>

struct Own {
  using master = float;
#ifndef BAD
  using compute = float;
#endif
  using reduce = float;
  using accumulate = float;
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
