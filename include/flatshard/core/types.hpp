// Counts and positions: 64-bit everywhere, signed so that differences are safe.
#pragma once

#include <cstdint>

namespace flatshard {

using Rank = int;               // position in a communicator, 0 <= rank < world size
using Elements = std::int64_t;  // number of elements, or an offset in elements
using Bytes = std::int64_t;     // number of bytes, or an offset in bytes

/// ceil_div(a, b) == the least q with q * b >= a. Requires a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

/// round_up(a, b) == the least multiple of b that is >= a. Requires a >= 0, b > 0.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

/// True for 1, 2, 4, 8, ...
constexpr bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// The largest power of two that is < n, for n >= 2: where the reduction tree splits n terms.
constexpr std::int64_t power_of_two_below(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n - power) power *= 2;
  return power;
}

}  // namespace flatshard
