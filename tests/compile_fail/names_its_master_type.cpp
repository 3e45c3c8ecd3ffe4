// A precision names its master type.
// expect: NamesItsMasterType
// expect: master
#include <flatshard/policy/precision.hpp>

struct Own {
#ifndef BAD
  using master = float;
#endif
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
