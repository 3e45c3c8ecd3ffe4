#include <flatshard/ops/normal.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "random.hpp"

namespace flatshard {
namespace {

/// How far the point is from the one that is exceeded with probability p.
double point_error(double p) {
  const double x = detail::normal_upper_point(p);
  const double probability = std::erfc(x / std::sqrt(2.0)) / 2;
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  return std::fabs(probability - p) / density;
}

TEST_CASE("the inverse of the distribution function, over all of its range") {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 50000; ++i) {
    const double middle = 0.5 * static_cast<double>(random() >> 11) * 0x1p-53 + 0x1p-54;
    const double tail = std::ldexp(middle, -static_cast<int>(random() % 53));
    REQUIRE(point_error(middle) < 1e-9);
    REQUIRE(point_error(std::max(tail, 0x1p-54)) < 1e-9);
  }
  CHECK(point_error(0x1p-54) < 1e-9);
  CHECK(point_error(0.5) < 1e-9);
}

TEST_CASE("the logarithm") {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 50000; ++i) {
    const auto bits = random();
    const double x = std::ldexp(1 + static_cast<double>(bits >> 12) * 0x1p-52,
                                static_cast<int>(bits % 120) - 60);
    REQUIRE(std::fabs(detail::exact_log(x) - std::log(x)) <=
            1e-13 + 1e-13 * std::fabs(std::log(x)));
  }
  CHECK(detail::exact_log(1) == 0);
}

TEST_CASE("words: symmetric, bounded, and the median between the smallest two") {
  CHECK(standard_normal(0) > 8.2);
  CHECK(standard_normal(0) < 8.3);
  CHECK(standard_normal(0x7ff) == standard_normal(0));  // the lowest 11 bits are not used
  CHECK(standard_normal(0x7fffffffffffffffU) < 1e-8);
  auto random = flatshard_test::generator();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t word = random() >> 1;
    REQUIRE(standard_normal(word | 0x8000000000000000U) == -standard_normal(word));
  }
}

TEST_CASE("uniform numbers stay below one") {
  CHECK(standard_uniform(0) == 0);
  CHECK(standard_uniform(~std::uint64_t{0}) == 1 - 0x1p-53);
}

}  // namespace
}  // namespace flatshard
