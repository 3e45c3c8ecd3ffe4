#include "elements.hpp"

#include <flatshard/tensor/convert.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "printable.hpp"
#include "random.hpp"

namespace flatshard_tool {
namespace {

using flatshard::DType;

template <class Element>
std::span<const std::byte> bytes(const std::vector<Element>& values) {
  return std::as_bytes(std::span(values));
}

TEST_CASE("the largest differences are those of a loop over doubles, at any address") {
  std::mt19937_64 generator = flatshard_test::generator(3);
  std::uniform_real_distribution<float> numbers(-2, 2);
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 7, 1000}) {
    std::vector<float> a(count), b(count);
    Differences expected;
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = numbers(generator);
      b[i] = generator() % 3 == 0 ? a[i] : numbers(generator);
      const double difference = std::abs(double{a[i]} - double{b[i]});
      if (difference == 0) continue;
      ++expected.differing;
      expected.absolute = std::max(expected.absolute, difference);
      expected.relative = std::max(
          expected.relative, difference / std::max(std::abs(double{a[i]}), std::abs(double{b[i]})));
    }
    std::vector<std::byte> moved(count * 4 + 1);
    if (count > 0) std::memcpy(moved.data() + 1, a.data(), count * 4);
    Differences found;
    compare(DType::Float32, std::span(moved).subspan(1), DType::Float32, bytes(b), found);
    CHECK(found.differing == expected.differing);
    CHECK(found.absolute == expected.absolute);
    CHECK(found.relative == doctest::Approx(expected.relative).epsilon(1e-15));
  }
}

TEST_CASE("NaN equals NaN, zeros and infinities of one kind are equal, others are not") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a{nan, nan, 0.0F, infinity, infinity}, b{nan, 1, -0.0F, infinity, 1};
  Differences found;
  compare(DType::Float32, bytes(a), DType::Float32, bytes(b), found);
  CHECK(found.differing == 2);
  CHECK(found.incomparable == 1);
  CHECK(std::isinf(found.absolute));
  CHECK(std::isinf(found.relative));
}

TEST_CASE("integers beyond 2^53 and other dtypes are compared as numbers") {
  const std::vector<std::int64_t> a{(std::int64_t{1} << 53) + 1, -1},
      b{(std::int64_t{1} << 53) + 2, -1};
  Differences found;
  compare(DType::Int64, bytes(a), DType::Int64, bytes(b), found);
  CHECK(found.differing == 1);
  CHECK(found.absolute == 1);
  const std::vector<float> c{1.0F, 0.5F};
  const std::vector<std::uint8_t> d{1, 0};
  Differences mixed;
  compare(DType::Float32, bytes(c), DType::UInt8, bytes(d), mixed);
  CHECK(mixed.differing == 1);
  CHECK(mixed.absolute == 0.5);
  CHECK(mixed.relative == 1);
}

TEST_CASE("conversion rounds each element once and counts what overflows") {
  std::mt19937_64 generator = flatshard_test::generator(4);
  std::vector<double> from(999);
  for (double& value : from)
    value = std::ldexp(std::normal_distribution<double>()(generator),
                       static_cast<int>(generator() % 200) - 100);
  from[3] = 1e300;
  from[4] = -std::numeric_limits<double>::infinity();
  from[5] = std::numeric_limits<double>::quiet_NaN();
  std::vector<flatshard::Half> to(from.size(), flatshard::Half{0x5a5a});
  const std::int64_t overflows =
      convert(DType::Float64, bytes(from), DType::Float16, std::as_writable_bytes(std::span(to)));
  std::int64_t expected = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto half = flatshard::from_double<flatshard::Half>(from[i]);
    CHECK(to[i].bits == half.bits);
    expected +=
        std::isfinite(from[i]) && std::abs(from[i]) >= 65520;  // the first that rounds beyond 65504
  }
  CHECK(overflows == expected);
  CHECK(expected >= 1);
}

TEST_CASE("what a terminal would obey is shown as text") {
  CHECK(printable("layer.0 \xc3\xa9") == "layer.0 \xc3\xa9");
  CHECK(printable("a\x1b[2Jb\n") == "a\\u001b[2Jb\\u000a");
  CHECK(printable("\xc2\x9b") == "\\u009b");
  CHECK(printable("\xff\xc3") == "\\xff\\xc3");
  CHECK(printable("\xc0\x80\xed\xa0\x80") == "\\xc0\\x80\\xed\\xa0\\x80");
}

}  // namespace
}  // namespace flatshard_tool
