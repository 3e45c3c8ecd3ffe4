// A precision says how it scales the loss.
// expect: SaysHowItScalesTheLoss
// expect: loss_scaling
#include <flatshard/policy/precision.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = float;
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
#ifndef BAD
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
#endif
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
