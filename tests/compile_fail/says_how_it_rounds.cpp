// A precision says how it rounds.
// expect: SaysHowItRounds
// expect: rounding
#include <flatshard/policy/precision.hpp>

struct Own {
  using master = float;
  using compute = float;
  using reduce = float;
  using accumulate = float;
  using state = float;
#ifndef BAD
  static constexpr flatshard::Rounding rounding = flatshard::Rounding::Nearest;
#endif
  static constexpr flatshard::LossScaling loss_scaling = flatshard::LossScaling::Off;
};

constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Own>();
