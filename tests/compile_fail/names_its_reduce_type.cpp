// A precision names its reduce type.
// expect: NamesItsReduceType
// expect: reduce
#include <flatshard/policy/precision.hpp>

struct Own {
  using master = float;
  using compute = float;
#ifndef BAD
  using reduce = float;
#endif
  using accumulate = float;
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
