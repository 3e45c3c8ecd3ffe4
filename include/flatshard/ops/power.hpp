// Powers by repeated squaring: the same bits on every host and device, without pow.
#pragma once

#include <flatshard/core/exact.hpp>

#include <cstdint>

namespace flatshard {

/// 1 - base^exponent, the last product fused into the subtraction (0 for exponent 0).
/// |relative error| < 1e-15 * exponent / (1 - base^exponent) for 0 <= base < 1.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double one_minus_power(double base, std::int64_t exponent) {
  double rest = 1.0;     // base^(bits of exponent below the current one)
  double square = base;  // base^(current bit)
  if (exponent == 0) return 0.0;
  for (; exponent > 1; exponent >>= 1) {
    if ((exponent & 1) != 0) rest = exact::mul(rest, square);
    square = exact::mul(square, square);
  }
  return exact::fma(-rest, square, 1.0);
}

}  // namespace flatshard
