// A role's type is a floating one.
// expect: HasAFloatingDType
// expect: is_floating
#include <flatshard/policy/precision.hpp>

struct Own {
#ifdef BAD
  using master = int;
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

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
