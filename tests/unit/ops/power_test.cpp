#include <flatshard/ops/power.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

namespace flatshard {
namespace {

TEST_CASE("1 - base^n against long double") {
  for (const double base : {0.0, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999999}) {
    for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 10, 63, 64, 1000, 123457}) {
      const long double power =
          std::pow(static_cast<long double>(base), static_cast<long double>(n));
      const auto exact = static_cast<double>(1 - power);
      CAPTURE(base);
      CAPTURE(n);
      CHECK(std::fabs(one_minus_power(base, n) - exact) <=
            1e-15 * static_cast<double>(n) * static_cast<double>(power) + 0x1p-53 * exact);
    }
  }
}

TEST_CASE("1 - base^n ends in one rounding of 1 - base^(n-1) * base") {
  CHECK(one_minus_power(0.999, 1) == 1 - 0.999);
  CHECK(one_minus_power(0.999, 2) == std::fma(-0.999, 0.999, 1.0));
  CHECK(one_minus_power(0.9, 3) == std::fma(-(0.9 * 0.9), 0.9, 1.0));
  CHECK(one_minus_power(0.9, 6) == std::fma(-power(0.9, 5), 0.9, 1.0));
  CHECK(one_minus_power(0.5, std::int64_t{1} << 60) == 1);
}

TEST_CASE("powers") {
  CHECK(power(0.7, 0) == 1);
  CHECK(power(0.0, 0) == 1);
  CHECK(power(0.0, 3) == 0);
  CHECK(power(0.5, 1000) == 0x1p-1000);
  CHECK(power(0.7, 5) == 0.7 * ((0.7 * 0.7) * (0.7 * 0.7)));
}

}  // namespace
}  // namespace flatshard
