// Standard normal numbers from random bits by the inverse of the distribution function, without
// libm: the same bits on every host and device.
#pragma once

#include <flatshard/core/bits.hpp>
#include <flatshard/core/exact.hpp>

#include <cstdint>

namespace flatshard {

namespace detail {

/// c[0] + x (c[1] + x (c[2] + ...))
template <int Size>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double polynomial(const double (&c)[Size], double x) {
  double value = c[Size - 1];
  for (int k = Size - 2; k >= 0; --k) value = exact::fma(value, x, c[k]);
  return value;
}

/// log(x) for a normal x > 0; |error| < 1e-13 |log(x)| + 1e-13. x == 2^exponent * m with m next to
/// 1, and log(m) == 2 (s + s^3/3 + s^5/5 + ...) for s == (m - 1) / (m + 1), |s| < 0.172.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double exact_log(double x) {
  constexpr std::int64_t one = 0x3ff0000000000000;        // bits of 1
  constexpr std::int64_t root_half = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2): m is from there on
  const double odd_terms[] = {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15};
  const auto bits = bit_cast<std::int64_t>(x);
  const std::int64_t exponent = (bits - root_half) >> 52;
  const auto m = bit_cast<double>(bits - exponent * (one - 0x3fe0000000000000));
  const double s = exact::div(exact::add(m, -1.0), exact::add(m, 1.0));
  const double square = exact::mul(s, s);
  const double cube = exact::mul(s, square);
  const double log_m = exact::fma(polynomial(odd_terms, square), cube, exact::mul(2.0, s));
  return exact::fma(static_cast<double>(exponent), 0x1.62e42fefa39efp-1, log_m);
}

/// The x that a standard normal number exceeds with probability p, for 2^-54 <= p <= 1/2;
/// |error| < 1e-9. Rational in t == sqrt(-2 log p), fitted by tests/reference/fit_normal.py.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double normal_upper_point(double p) {
  const double numerator[] = {-0x1.ba7202891356ep+1, -0x1.37f37db7a605cp+4, -0x1.682b74a7ab927p+3,
                              0x1.c52b3093d5fe0p+3,  0x1.19aa4f177bb5cp+3,  0x1.c11d84d24fb3fp-1};
  const double denominator[] = {1.0,
                                0x1.389694701bf62p+3,
                                0x1.1e01aec2e33f0p+4,
                                0x1.1adaba804c3a6p+3,
                                0x1.c0c6a9911908dp-1,
                                0x1.0f4c4d04f378dp-17};
  const double t = exact::sqrt(exact::mul(-2.0, exact_log(p)));
  return exact::div(polynomial(numerator, t), polynomial(denominator, t));
}

}  // namespace detail

/// Standard normal if the upper 53 bits of `word` are uniform: the top bit is the sign, the others
/// the distance from the median in probability. |value| < 8.3, symmetric, |error| < 1e-9.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double standard_normal(std::uint64_t word) {
  const auto cell = static_cast<std::int64_t>((word >> 11) & 0xfffffffffffffU);  // of 2^52
  const double p = exact::mul(exact::add(static_cast<double>(cell), 0.5), 0x1p-53);
  const double magnitude = detail::normal_upper_point(p);
  return (word >> 63) != 0 ? -magnitude : magnitude;
}

/// In [0, 1), the upper 53 bits of `word`.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double standard_uniform(std::uint64_t word) {
  return exact::mul(static_cast<double>(static_cast<std::int64_t>(word >> 11)), 0x1p-53);
}

}  // namespace flatshard
