#include <flatshard/tensor/convert.hpp>

#include <doctest/doctest.h>

#include <string>

#include "number_format.hpp"
#include "random.hpp"

namespace flatshard {
namespace {

using flatshard_test::format_of;
using flatshard_test::same_number;

template <class Element>
Element element(unsigned bits) {
  return {static_cast<decltype(Element::bits)>(bits)};
}

/// Both ways to round `x`, against the format's definition.
template <class Element>
bool rounds_right(double x) {
  const auto& format = format_of<Element>;
  const auto as_float = static_cast<float>(x);
  return same_number(to_double(from_double<Element>(x)), format.round(x)) &&
         same_number(to_double(from_float<Element>(as_float)), format.round(as_float));
}

std::string show(double x) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a", x);
  return text;
}

TEST_CASE_TEMPLATE("every pattern decodes to its value", Element, Bf16, Half, Float8E4M3,
                   Float8E5M2) {
  for (unsigned bits = 0; bits < format_of<Element>.patterns(); ++bits) {
    const double expected = format_of<Element>.decode(bits);
    CAPTURE(bits);
    REQUIRE(same_number(static_cast<double>(to_float(element<Element>(bits))), expected));
    REQUIRE(same_number(to_double(element<Element>(bits)), expected));
  }
}

TEST_CASE_TEMPLATE("encode(decode(x)) == x, NaN keep sign and payload, quieted", Element, Bf16,
                   Half, Float8E4M3, Float8E5M2) {
  const auto& format = format_of<Element>;
  for (unsigned bits = 0; bits < format.patterns(); ++bits) {
    const auto x = element<Element>(bits);
    const bool quieted = std::isnan(format.decode(bits)) && format.has_infinity;
    const auto expected =
        element<Element>(quieted ? bits | (1U << (format.mantissa_bits - 1)) : bits);
    CAPTURE(bits);
    REQUIRE(from_float<Element>(to_float(x)) == expected);
    REQUIRE(from_double<Element>(to_double(x)) == expected);
  }
}

TEST_CASE_TEMPLATE("numbers between neighbours round to the nearest, ties to even", Element, Bf16,
                   Half, Float8E4M3, Float8E5M2) {
  const auto& format = format_of<Element>;
  for (unsigned bits = 0; bits + 1 < format.patterns() / 2; ++bits) {
    const double low = format.decode(bits);
    const double high = format.decode(bits + 1);
    if (!std::isfinite(low) || std::isnan(high)) continue;
    const double next = std::isinf(high) ? low + (low - format.decode(bits - 1)) : high;
    const double middle = low + (next - low) / 2;
    for (const double x :
         {middle, std::nextafter(middle, 0.0), std::nextafter(middle, HUGE_VAL),
          static_cast<double>(std::nextafterf(static_cast<float>(middle), 0.0F)),
          static_cast<double>(std::nextafterf(static_cast<float>(middle), HUGE_VALF)),
          low + (next - low) / 3, std::nextafter(low, HUGE_VAL)}) {
      REQUIRE_MESSAGE(rounds_right<Element>(x), show(x));
      REQUIRE_MESSAGE(rounds_right<Element>(-x), show(-x));
    }
  }
}

TEST_CASE_TEMPLATE("random numbers", Element, Bf16, Half, Float8E4M3, Float8E5M2) {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 300000; ++i) {
    const auto any_float = bit_cast<float>(static_cast<std::uint32_t>(random()));
    const auto any_double = bit_cast<double>(random());
    const double near = std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52,
                                   static_cast<int>(random() % 60) - 40);
    for (const double x : {static_cast<double>(any_float), any_double, near, -near})
      if (!std::isnan(x)) REQUIRE_MESSAGE(rounds_right<Element>(x), show(x));
  }
}

TEST_CASE("too large numbers") {
  CHECK(from_float<Half>(65519.0F) == Half{0x7bff});
  CHECK(from_float<Half>(-65520.0F) == Half{0xfc00});
  CHECK(from_float<Bf16>(3.4028234e38F) == Bf16{0x7f80});
  CHECK(from_double<Bf16>(-1e300) == Bf16{0xff80});
  CHECK(from_float<Float8E5M2>(61439.0F) == Float8E5M2{0x7b});
  CHECK(from_float<Float8E5M2>(61440.0F) == Float8E5M2{0x7c});
  CHECK(from_float<Float8E4M3>(464.0F) == Float8E4M3{0x7e});
  CHECK(from_double<Float8E4M3>(464.0000001) == Float8E4M3{0x7f});
  CHECK(from_float<Float8E4M3>(-HUGE_VALF) == Float8E4M3{0xff});
}

TEST_CASE("a float that double rounding would get wrong") {
  const double x =
      1 + 0x1p-8 + 0x1p-40;  // just above the middle of two bf16; a float is the middle
  CHECK(from_double<Bf16>(x) == Bf16{0x3f81});
  CHECK(from_float<Bf16>(static_cast<float>(x)) == Bf16{0x3f80});
}

TEST_CASE("integers and bool") {
  CHECK(convert<std::int32_t>(std::int64_t{-7}) == -7);
  CHECK(convert<std::uint8_t>(std::int32_t{257}) == 1);
  CHECK(convert<float>(std::int64_t{1} << 60) == 0x1p60F);
  CHECK(convert<Half>(std::int32_t{3}) == Half{0x4200});
  CHECK(convert<bool>(0.5F));
  CHECK(!convert<bool>(-0.0));
  CHECK(convert<bool>(from_float<Half>(NAN)));
  CHECK(convert<double>(true) == 1);
  CHECK(convert<std::int8_t>(-3.9F) == -3);
  CHECK(convert<std::int8_t>(1e9F) == 127);
  CHECK(convert<std::uint8_t>(-1.0F) == 0);
  CHECK(convert<std::int64_t>(1e30) == std::numeric_limits<std::int64_t>::max());
  CHECK(convert<std::int64_t>(-1e30) == std::numeric_limits<std::int64_t>::min());
  CHECK(convert<std::int32_t>(NAN) == 0);
}

TEST_CASE("between floating types, and to the same one") {
  CHECK(convert<Half>(Bf16{0x3fc0}) == Half{0x3e00});
  CHECK(convert<Bf16>(Bf16{0x7f81}) == Bf16{0x7f81});  // a signalling NaN: copied, not converted
  CHECK(convert<float>(0.1) == 0.1F);
  CHECK(convert<double>(Float8E4M3{0x01}) == 0x1p-9);
}

// Two minutes; run with: unit_tensor --no-skip -tc="*all floats*"
TEST_CASE("bf16 of all floats" * doctest::skip()) {
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); ++bits) {
    const auto x = bit_cast<float>(static_cast<std::uint32_t>(bits));
    const double reference = format_of<Bf16>.round(static_cast<double>(x));
    wrong += !same_number(to_double(from_float<Bf16>(x)), reference);
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace flatshard
