#include <flatshard/core/exact.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "random.hpp"

namespace flatshard {
namespace {

/// A number with any mantissa, between 2^-20 and 2^20.
float any_float(std::mt19937_64& random) {
  const double mantissa = 1 + static_cast<double>(random() >> 41) * 0x1p-23;
  const double size = std::ldexp(mantissa, static_cast<int>(random() % 40) - 20);
  return static_cast<float>(random() % 2 == 0 ? size : -size);
}

TEST_CASE("float operations round once to nearest: as double arithmetic, which has room, does") {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 100000; ++i) {
    const float a = any_float(random);
    const float b = any_float(random);
    const double wide_a = static_cast<double>(a);
    const double wide_b = static_cast<double>(b);
    REQUIRE(exact::mul(a, b) == static_cast<float>(wide_a * wide_b));
    REQUIRE(exact::add(a, b) == static_cast<float>(wide_a + wide_b));
    REQUIRE(exact::div(a, b) == static_cast<float>(wide_a / wide_b));
    REQUIRE(exact::sqrt(std::fabs(a)) == static_cast<float>(std::sqrt(std::fabs(wide_a))));
  }
}

TEST_CASE_TEMPLATE("fma keeps what a product rounds away", Real, float, double) {
  constexpr Real epsilon = std::numeric_limits<Real>::epsilon();
  const Real a = 1 + epsilon;
  const Real b = 1 - epsilon;
  CHECK(exact::mul(a, b) == 1);
  CHECK(exact::fma(a, b, Real{-1}) == -epsilon * epsilon);
}

TEST_CASE_TEMPLATE("denormals, infinities and NaN are what they are", Real, float, double) {
  constexpr Real smallest = std::numeric_limits<Real>::denorm_min();
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  CHECK(exact::add(smallest, smallest) == 2 * smallest);
  CHECK(exact::mul(smallest, Real{0.5}) == 0);
  CHECK(exact::div(smallest, smallest) == 1);
  CHECK(exact::add(infinity, Real{-1}) == infinity);
  CHECK(std::isnan(exact::add(infinity, -infinity)));
  CHECK(std::isnan(exact::sqrt(Real{-1})));
  CHECK(std::signbit(exact::mul(Real{-1}, Real{0})));
}

TEST_CASE("names for what is exact: denormals and zeros too") {
  constexpr float smallest = std::numeric_limits<float>::denorm_min();
  CHECK(exact::is_less(0.0F, smallest));
  CHECK(exact::is_less(-smallest, 0.0F));
  CHECK(!exact::is_less(-0.0F, 0.0F));
  CHECK(!exact::is_less(NAN, 0.0F));
  CHECK(exact::is_less(1.0, 1.0 + 0x1p-52));
  CHECK(exact::negate(smallest) == -smallest);
  CHECK(std::signbit(exact::negate(0.0F)));
  CHECK(exact::negate(0.5) == -0.5);
  CHECK(exact::to_float(1e-45) == smallest);
  CHECK(exact::to_double(smallest) == 0x1p-149);
  CHECK(exact::round_to<float>(1 + 0x1p-24) == 1.0F);  // half a place: to even
  CHECK(exact::round_to<double>(1 + 0x1p-24) == 1 + 0x1p-24);
}

TEST_CASE("double operations: what a rounded result lost is at most half a place") {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 10000; ++i) {
    const double a = static_cast<double>(any_float(random)) * 1.1;
    const double b = static_cast<double>(any_float(random)) * 1.3;
    const double product = exact::mul(a, b);
    const double quotient = exact::div(a, b);
    const double root = exact::sqrt(std::fabs(a));
    REQUIRE(std::fabs(exact::fma(a, b, -product)) <= std::fabs(product) * 0x1p-53);
    REQUIRE(std::fabs(exact::fma(quotient, b, -a)) <= std::fabs(quotient * b) * 0x1p-52);
    REQUIRE(std::fabs(exact::fma(root, root, -std::fabs(a))) <= std::fabs(a) * 0x1p-51);
  }
}

}  // namespace
}  // namespace flatshard
