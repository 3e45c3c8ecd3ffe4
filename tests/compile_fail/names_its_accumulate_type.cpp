// A precision names its accumulate type.
// expect: NamesItsAccumulateType
// expect: accumulate
#include <flatshard/policy/precision.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
#ifndef BAD
  using accumulate = float;
#endif
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
