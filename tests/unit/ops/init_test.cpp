#include <flatshard/core/error.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/tensor/convert.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "random.hpp"

namespace flatshard {
namespace {

std::vector<double> filled(const Initializer& initializer, Elements begin, Elements count) {
  std::vector<double> values(static_cast<std::size_t>(count), NAN);
  fill(initializer, DType::Float64, values.data(), begin, count);
  return values;
}

/// Largest distance between the values' distribution and the normal one (Kolmogorov, Smirnov).
double distance_from_normal(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = std::erfc(-values[i] / std::sqrt(2.0)) / 2;
    const auto below = static_cast<double>(i);
    distance = std::max({distance, expected - below / count, (below + 1) / count - expected});
  }
  return distance;
}

TEST_CASE("normal values: mean, variance, tails, distribution") {
  const std::uint64_t seed = flatshard_test::generator()();
  constexpr Elements count = 1 << 18;
  const auto values = filled(init::normal{1, seed}, 0, count);
  double sum = 0, squares = 0;
  int beyond3 = 0;
  for (const double x : values) {
    sum += x;
    squares += x * x;
    beyond3 += std::fabs(x) > 3 ? 1 : 0;
  }
  const double root = std::sqrt(static_cast<double>(count));
  CHECK(std::fabs(sum / count) < 6 / root);
  CHECK(std::fabs(squares / count - 1) < 6 * std::sqrt(2.0) / root);
  const double expected3 = std::erfc(3 / std::sqrt(2.0)) * count;
  CHECK(std::fabs(beyond3 - expected3) < 6 * std::sqrt(expected3));
  CHECK(distance_from_normal(values) < 3 / root);  // exceeded by chance once in 3e7 runs
}

struct Committed {
  std::uint64_t seed;
  Elements index;
  double normal;
  double uniform;
};

constexpr Committed committed[] = {
    {0U, 0, -0.251236570073, 0.900815606117024},
    {1U, 0, 2.286201160767, 0.011121246449422},
    {1U, 1, -0.748331128067, 0.727130226598754},
    {7U, 4294967301, -1.326324944607, 0.592366043887152},
    {9223372036854775808U, 999999, 1.172870926702, 0.120423784985710},
};

TEST_CASE("committed values, made by another program") {
  for (const Committed& c : committed) {
    CHECK(std::fabs(init::normal{1, c.seed}.value(c.index) - c.normal) < 1e-9);
    CHECK(std::fabs(init::uniform{0, 1, c.seed}.value(c.index) - c.uniform) < 1e-14);
  }
}

TEST_CASE("uniform values: range and mean") {
  const auto values = filled(init::uniform{-2, 6, flatshard_test::generator()()}, 5, 1 << 16);
  double sum = 0;
  for (const double x : values) {
    REQUIRE(x >= -2);
    REQUIRE(x < 6);
    sum += x;
  }
  CHECK(std::fabs(sum / (1 << 16) - 2) < 6 * 8 / std::sqrt(12.0) / 256);
}

TEST_CASE("constants and zeros") {
  for (const double x : filled(init::constant{0.25}, 3, 7)) CHECK(x == 0.25);
  for (const double x : filled(init::zeros{}, 3, 7)) CHECK(x == 0);
}

TEST_CASE("values depend on seed and canonical index only, however a range is cut") {
  auto random = flatshard_test::generator();
  const Initializer initializer = init::normal{0.02, random()};
  const Elements begin = (Elements{1} << 32) - 500;  // across a high word
  const auto whole = filled(initializer, begin, 1000);
  for (int i = 0; i < 50; ++i) {
    const auto first = static_cast<Elements>(random() % 1000);
    const auto count = static_cast<Elements>(random() % static_cast<std::uint64_t>(1000 - first));
    const auto part = filled(initializer, begin + first, count);
    REQUIRE(std::equal(part.begin(), part.end(), whole.begin() + first));
  }
  CHECK(filled(init::normal{0.02, 1}, 0, 4) != filled(init::normal{0.02, 2}, 0, 4));
  const init::normal normal{0.02, 9};
  CHECK(filled(normal, 77, 1)[0] == normal.value(77));
}

TEST_CASE_TEMPLATE("each dtype is rounded once from double", Element, float, Bf16, Half, Float8E4M3,
                   Float8E5M2) {
  const std::uint64_t seed = flatshard_test::generator()();
  for (const Initializer& initializer :
       {Initializer{init::normal{0.5, seed}}, Initializer{init::uniform{-1, 1, seed}}}) {
    const auto exact = filled(initializer, 11, 333);
    std::vector<Element> values(334, Element{});
    fill(initializer, dtype_of<Element>, values.data(), 11, 333);
    for (std::size_t i = 0; i < 333; ++i) REQUIRE(values[i] == from_double<Element>(exact[i]));
    CHECK(values[333] == Element{});
  }
}

TEST_CASE("an empty range touches nothing; what is impossible is refused") {
  fill(init::normal{}, DType::Float32, nullptr, 0, 0);
  float x = 0;
  CHECK_THROWS_AS(fill(init::zeros{}, DType::Int32, &x, 0, 1), UsageError);
  CHECK_THROWS_AS(fill(init::normal{-1, 0}, DType::Float32, &x, 0, 1), UsageError);
  CHECK_THROWS_AS(fill(init::normal{NAN, 0}, DType::Float32, &x, 0, 1), UsageError);
  CHECK_THROWS_AS(fill(init::uniform{1, 0, 0}, DType::Float32, &x, 0, 1), UsageError);
  CHECK_THROWS_AS(fill(init::uniform{-1e308, 1e308, 0}, DType::Float32, &x, 0, 1), UsageError);
}

}  // namespace
}  // namespace flatshard
