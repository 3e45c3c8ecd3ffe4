// Running error analysis (Wilkinson 1986): a formula written naively in Bounded gives its value
// and, to first order, how far a computation of it in Real may be off. What a test allows is then
// derived from its inputs, whatever cancels.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace flatshard_test {

using Wide = long double;

/// A value in wide arithmetic, and the bound of a computed one's distance from it in units of the
/// unit roundoff of Real, half an epsilon. Every operation adds one rounding.
struct Bounded {
  Wide value = 0;
  Wide error = 0;
};

inline Bounded rounded(Wide value, Wide error) { return {value, error + std::fabs(value)}; }

inline Bounded operator-(const Bounded& a) { return {-a.value, a.error}; }
inline Bounded operator+(const Bounded& a, const Bounded& b) {
  return rounded(a.value + b.value, a.error + b.error);
}
inline Bounded operator-(const Bounded& a, const Bounded& b) { return a + -b; }
inline Bounded operator*(const Bounded& a, const Bounded& b) {
  return rounded(a.value * b.value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error);
}
/// Requires b far from zero, compared with its error.
inline Bounded operator/(const Bounded& a, const Bounded& b) {
  const Wide quotient = a.value / b.value;
  return rounded(quotient, (a.error + std::fabs(quotient) * b.error) / std::fabs(b.value));
}
/// Nothing is known of the root of what is not far from zero, compared with its error.
inline Bounded sqrt(const Bounded& a) {
  if (a.value == 0 && a.error == 0) return {};
  if (a.value < a.error * 1e-5L) return {std::sqrt(std::max(a.value, Wide{0})), HUGE_VALL};
  const Wide root = std::sqrt(a.value);
  return rounded(root, a.error / (2 * root));
}
inline Bounded max(const Bounded& a, const Bounded& b) {
  return {std::max(a.value, b.value), std::max(a.error, b.error)};
}

/// A coefficient that is formed in double, where it may be off by `ulps` times 2^-53, and rounded
/// once to Real.
template <class Real>
Bounded formed(Wide value, Wide ulps = 0) {
  const Wide unit = Wide{std::numeric_limits<Real>::epsilon()} / 2;
  return rounded(value, ulps * 0x1p-53L / unit);
}

/// How far `computed` is from the reference, in parts of what is allowed.
template <class Real>
double part_of_bound(Wide computed, const Bounded& reference) {
  const Wide unit = Wide{std::numeric_limits<Real>::epsilon()} / 2;
  const Wide off = std::fabs(computed - reference.value);
  return off == 0 ? 0 : static_cast<double>(off / (unit * reference.error));
}

}  // namespace flatshard_test
