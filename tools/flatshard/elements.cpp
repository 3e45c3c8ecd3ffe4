#include "elements.hpp"

#include <flatshard/tensor/convert.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace flatshard_tool {
namespace {

using flatshard::DType;

/// function(Element{}) for the C++ type of a dtype.
template <class Function>
void with_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::Float64:
      return function(double{});
    case DType::Float32:
      return function(float{});
    case DType::BFloat16:
      return function(flatshard::Bf16{});
    case DType::Float16:
      return function(flatshard::Half{});
    case DType::Float8E4M3:
      return function(flatshard::Float8E4M3{});
    case DType::Float8E5M2:
      return function(flatshard::Float8E5M2{});
    case DType::Int64:
      return function(std::int64_t{});
    case DType::Int32:
      return function(std::int32_t{});
    case DType::Int8:
      return function(std::int8_t{});
    case DType::UInt8:
    case DType::Bool:
      return function(std::uint8_t{});
  }
}

/// Elements of files may lie at any address.
template <class Element>
Element element(const std::byte* data, std::size_t index) {
  Element value;
  std::memcpy(&value, data + index * sizeof(Element), sizeof(Element));
  return value;
}

/// All integers up to 2^63 and all floating-point numbers are exact in it (on x86-64).
template <class Element>
long double number(Element value) {
  if constexpr (std::is_integral_v<Element>)
    return static_cast<long double>(value);
  else
    return flatshard::to_double(value);
}

void add(long double a, long double b, Differences& differences) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return;
  ++differences.differing;
  if (std::isnan(a) || std::isnan(b)) {
    ++differences.incomparable;
    return;
  }
  const long double difference = std::abs(a - b);
  const long double largest = std::max(std::abs(a), std::abs(b));
  const double relative = std::isinf(largest) ? std::numeric_limits<double>::infinity()
                                              : static_cast<double>(difference / largest);
  differences.absolute = std::max(differences.absolute, static_cast<double>(difference));
  differences.relative = std::max(differences.relative, relative);
}

/// How many finite elements became infinite or NaN; integers are not converted.
template <class From, class To>
std::int64_t convert_elements(const std::byte* from, std::size_t count, std::byte* to) {
  std::int64_t overflows = 0;
  if constexpr (!std::is_integral_v<From> && !std::is_integral_v<To>) {
    for (std::size_t i = 0; i < count; ++i) {
      const double value = flatshard::to_double(element<From>(from, i));
      const To result = flatshard::from_double<To>(value);
      overflows += std::isfinite(value) && !std::isfinite(flatshard::to_double(result));
      std::memcpy(to + i * sizeof(To), &result, sizeof(To));
    }
  }
  return overflows;
}

}  // namespace

void compare(DType dtype_a, std::span<const std::byte> a, DType dtype_b,
             std::span<const std::byte> b, Differences& differences) {
  const std::size_t count = a.size() / static_cast<std::size_t>(flatshard::size_of(dtype_a));
  with_type(dtype_a, [&]<class A>(A) {
    with_type(dtype_b, [&]<class B>(B) {
      for (std::size_t i = 0; i < count; ++i)
        add(number(element<A>(a.data(), i)), number(element<B>(b.data(), i)), differences);
    });
  });
}

std::int64_t convert(DType dtype_from, std::span<const std::byte> from, DType dtype_to,
                     std::span<std::byte> to) {
  std::int64_t overflows = 0;
  const std::size_t count = from.size() / static_cast<std::size_t>(flatshard::size_of(dtype_from));
  with_type(dtype_from, [&]<class From>(From) {
    with_type(dtype_to, [&]<class To>(To) {
      overflows = convert_elements<From, To>(from.data(), count, to.data());
    });
  });
  return overflows;
}

}  // namespace flatshard_tool
