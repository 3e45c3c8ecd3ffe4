// Powers by repeated squaring: the same bits on every host and device, without pow.
#pragma once

#include <flatshard/core/exact.hpp>

#include <cstdint>

namespace flatshard {

/// base^exponent for exponent >= 0; relative error below exponent * 2^-53 until it underflows.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = exact::mul(result, base);
    base = exact::mul(base, base);
  }
  return result;
}

/// 1 - base^exponent for exponent >= 1, the last product fused into the subtraction.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double one_minus_power(double base, std::int64_t exponent) {
  return exact::fma(-power(base, exponent - 1), base, 1.0);
}

}  // namespace flatshard
