// Narrow number formats by their definition, in double: the reference of the conversions.
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include <cmath>
#include <limits>

namespace flatshard_test {

struct NumberFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // the largest exponent is kept for infinity and NaN; else one NaN only

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_bit() const { return exponent_bits + mantissa_bits; }
  unsigned patterns() const { return 2U << sign_bit(); }

  /// (-1)^sign * 1.mantissa * 2^(exponent - bias), denormals with exponent 1 and no leading one.
  double decode(unsigned bits) const {
    const auto mantissa = static_cast<int>(bits & ((1U << mantissa_bits) - 1));
    const auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1));
    const double sign = (bits >> sign_bit()) != 0 ? -1 : 1;
    const bool top = exponent == (1 << exponent_bits) - 1;
    if (has_infinity && top)
      return mantissa == 0 ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
    if (top && mantissa == (1 << mantissa_bits) - 1)
      return std::numeric_limits<double>::quiet_NaN();
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    const int power = (exponent == 0 ? 1 : exponent) - bias() - mantissa_bits;
    return sign * std::ldexp(whole, power);
  }

  double largest() const {
    return decode((1U << sign_bit()) - (has_infinity ? 1U << mantissa_bits : 1U) - 1);
  }

  /// `x` rounded to nearest even in the format, as a double; beyond the largest, infinity or NaN.
  double round(double x) const {
    if (!std::isfinite(x)) return has_infinity ? x : std::numeric_limits<double>::quiet_NaN();
    int exponent = 0;
    std::frexp(x, &exponent);  // |x| < 2^exponent
    const int power = std::max(exponent - 1, 1 - bias()) - mantissa_bits;
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -power)), power);
    if (std::fabs(rounded) <= largest()) return rounded;
    return has_infinity ? std::copysign(HUGE_VAL, x) : std::numeric_limits<double>::quiet_NaN();
  }
};

template <class Element>
inline constexpr NumberFormat format_of{};
template <>
inline constexpr NumberFormat format_of<flatshard::Bf16>{8, 7, true};
template <>
inline constexpr NumberFormat format_of<flatshard::Half>{5, 10, true};
template <>
inline constexpr NumberFormat format_of<flatshard::Float8E4M3>{4, 3, false};
template <>
inline constexpr NumberFormat format_of<flatshard::Float8E5M2>{5, 2, true};

/// Equal values with equal signs; all NaN are equal.
inline bool same_number(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

}  // namespace flatshard_test
