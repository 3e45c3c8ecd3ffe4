// Conversions between element types, rounded once to nearest even. They need no CUDA header, treat
// denormals as the numbers they are, and have no branches, so that loops over them vectorise. On a
// GPU fp16 and bf16 are converted by its own instructions, which give NaN other bits.
//
// NaN stays NaN with its sign and the bits of its payload that fit, quieted. Too large a number
// becomes infinity; float8_e4m3 has none, so there everything above 464 in magnitude, infinity
// included, becomes NaN (nothing saturates: a saturating cast would hide an overflow).
#pragma once

#include <flatshard/core/bits.hpp>
#include <flatshard/core/exact.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <concepts>
#include <limits>
#include <type_traits>

namespace flatshard {

/// double, float and the storage types narrower than float.
template <class Element>
concept FloatingElement = is_floating(dtype_of<Element>);

/// The types that arithmetic is done in.
template <class Element>
concept ComputeElement = std::same_as<Element, float> || std::same_as<Element, double>;

namespace detail {

/// A binary format narrower than float: sign, exponent, mantissa from the top bit down.
template <int ExponentBits, int MantissaBits, bool HasInfinity>
struct NarrowFormat {
  using Word = std::uint32_t;
  static constexpr int dropped = 23 - MantissaBits;  // mantissa bits of a float that do not fit
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr int width = 1 + ExponentBits + MantissaBits;
  static constexpr Word sign = Word{1} << (width - 1);
  static constexpr Word exponent_mask = ((Word{1} << ExponentBits) - 1) << MantissaBits;
  static constexpr Word largest_bits = sign - 1;  // all ones below the sign
  static constexpr Word mantissa_mask = (Word{1} << MantissaBits) - 1;
  static constexpr Word quiet_nan =
      HasInfinity ? exponent_mask | (Word{1} << (MantissaBits - 1)) : largest_bits;
  // Of the magnitudes of floats: of the smallest normal number, and the first beyond every finite
  // exponent (with an infinity) or beyond what rounds to the largest number (without: 464).
  static constexpr Word rebias = static_cast<Word>(127 - bias) << 23;
  static constexpr Word smallest_normal = rebias + (Word{1} << 23);
  static constexpr Word first_beyond =
      HasInfinity ? rebias + (((Word{1} << ExponentBits) - 1) << 23)
                  : rebias + ((largest_bits - 1) << dropped) + (Word{1} << (dropped - 1)) + 1;
  static constexpr Word beyond = HasInfinity ? exponent_mask : quiet_nan;
  // A float whose last bit is the format's denormal step: adding it rounds there.
  static constexpr Word denormal_magic = static_cast<Word>(127 - bias + 1 + dropped) << 23;
};

using HalfFormat = NarrowFormat<5, 10, true>;
using E4M3Format = NarrowFormat<4, 3, false>;
using E5M2Format = NarrowFormat<5, 2, true>;

inline constexpr std::uint32_t float_sign = 0x80000000U;
inline constexpr std::uint32_t float_infinity = 0x7f800000U;
inline constexpr std::uint32_t float_quiet = 0x00400000U;

template <class Format>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS std::uint32_t narrow(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~float_sign;
  const std::uint32_t odd = (magnitude >> Format::dropped) & 1U;
  const std::uint32_t below_half = (1U << (Format::dropped - 1)) - 1U;
  const std::uint32_t normal = (magnitude - Format::rebias + below_half + odd) >> Format::dropped;
  const auto magic = bit_cast<float>(Format::denormal_magic);
  const std::uint32_t denormal =
      bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + magic) - Format::denormal_magic;
  const std::uint32_t payload = (magnitude >> Format::dropped) & Format::mantissa_mask;
  std::uint32_t result = magnitude < Format::smallest_normal ? denormal : normal;
  result = magnitude >= Format::first_beyond ? Format::beyond : result;
  result = magnitude > float_infinity ? Format::quiet_nan | payload : result;
  return result | ((bits & float_sign) >> (32 - Format::width));
}

template <class Format>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS float widen(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & Format::largest_bits;
  const std::uint32_t shifted = magnitude << Format::dropped;
  const auto smallest = bit_cast<float>(Format::smallest_normal);
  const auto denormal =
      bit_cast<std::uint32_t>(bit_cast<float>(shifted + Format::smallest_normal) - smallest);
  std::uint32_t result = magnitude <= Format::mantissa_mask ? denormal : shifted + Format::rebias;
  const std::uint32_t special = shifted | float_infinity;
  const bool has_infinity = Format::beyond == Format::exponent_mask;
  const bool is_special =
      has_infinity ? magnitude >= Format::exponent_mask : magnitude == Format::largest_bits;
  const bool is_nan = magnitude > Format::exponent_mask && is_special;
  result = is_special ? special : result;
  result = is_nan ? result | float_quiet : result;
  return bit_cast<float>(result | ((bits & Format::sign) << (32 - Format::width)));
}

/// bits of `value` with the lower half rounded away: a carry out of the mantissa is the right one.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS std::uint32_t narrow_to_bf16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quieted = (bits >> 16) | (float_quiet >> 16);
  return (bits & ~float_sign) > float_infinity ? quieted : rounded;
}

/// The float next to `value` whose last bit remembers that something was cut off (round to odd): a
/// second rounding, to at most 22 bits, then gives what a single one from `value` would.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS float round_to_odd(double value) {
  const float nearest = exact::to_float(value);
  const double back = exact::to_double(nearest);
  const double magnitude = value < 0 ? -value : value;
  const double reached = back < 0 ? -back : back;
  const auto bits = bit_cast<std::uint32_t>(nearest);
  const std::uint32_t towards = reached < magnitude ? bits + 1U : bits - 1U;
  const bool is_exact = reached == magnitude || value != value;  // NaN is kept
  return bit_cast<float>(is_exact || (bits & 1U) != 0 ? bits : towards);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FLATSHARD_INLINE __device__ std::uint16_t narrow_in_hardware(float value, Bf16) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
FLATSHARD_INLINE __device__ std::uint16_t narrow_in_hardware(float value, Half) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
FLATSHARD_INLINE __device__ float widen_in_hardware(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif

}  // namespace detail

/// Exact.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(float value) { return value; }
/// Exact.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(Bf16 value) {
  return bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
/// Exact.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(Half value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return detail::widen_in_hardware(value.bits);
#else
  return detail::widen<detail::HalfFormat>(value.bits);
#endif
}
/// Exact.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(Float8E4M3 value) {
  return detail::widen<detail::E4M3Format>(value.bits);
}
/// Exact.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(Float8E5M2 value) {
  return detail::widen<detail::E5M2Format>(value.bits);
}
/// Rounded once to nearest even.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(double value) {
  return exact::to_float(value);
}

/// from_float<Element>(x): x rounded once to nearest even.
template <FloatingElement Element>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Element from_float(float value) {
  if constexpr (std::same_as<Element, float>)
    return value;
  else if constexpr (std::same_as<Element, double>)
    return exact::to_double(value);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  else if constexpr (std::same_as<Element, Bf16> || std::same_as<Element, Half>)
    return {detail::narrow_in_hardware(value, Element{})};
#endif
  else if constexpr (std::same_as<Element, Bf16>)
    return {static_cast<std::uint16_t>(detail::narrow_to_bf16(value))};
  else if constexpr (std::same_as<Element, Half>)
    return {static_cast<std::uint16_t>(detail::narrow<detail::HalfFormat>(value))};
  else if constexpr (std::same_as<Element, Float8E4M3>)
    return {static_cast<std::uint8_t>(detail::narrow<detail::E4M3Format>(value))};
  else
    return {static_cast<std::uint8_t>(detail::narrow<detail::E5M2Format>(value))};
}

/// Exact.
template <FloatingElement Element>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double to_double(Element value) {
  if constexpr (std::same_as<Element, double>)
    return value;
  else
    return exact::to_double(to_float(value));
}

/// from_double<Element>(x): x rounded once (not by way of a rounded float) to nearest even.
template <FloatingElement Element>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Element from_double(double value) {
  if constexpr (ComputeElement<Element>)
    return exact::round_to<Element>(value);
  else
    return from_float<Element>(detail::round_to_odd(value));
}

namespace detail {

// As variables, because device code may not call numeric_limits' functions.
template <class Integer>
inline constexpr Integer lowest_integer = std::numeric_limits<Integer>::min();
template <class Integer>
inline constexpr Integer largest_integer = std::numeric_limits<Integer>::max();

/// Towards zero; numbers out of range give the nearest end of it, NaN gives 0.
template <class Integer>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Integer truncate(double value) {
  if (value != value) return 0;
  if (value <= static_cast<double>(lowest_integer<Integer>)) return lowest_integer<Integer>;
  if (value >= static_cast<double>(largest_integer<Integer>)) return largest_integer<Integer>;
  return static_cast<Integer>(value);
}

}  // namespace detail

/// `from` as an element of type To; to the same type, the same bits. Between floating types: as
/// from_float and from_double. Integers among themselves keep their low bits; to floating types
/// they round once (by way of double); from them they truncate, see detail::truncate. To bool: is
/// it not zero?
template <class To, class From>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE To convert(From from) {
  if constexpr (std::same_as<To, From>)
    return from;
  else if constexpr (!FloatingElement<From> && !FloatingElement<To>)
    return static_cast<To>(from);
  else if constexpr (!FloatingElement<From>)
    return from_double<To>(static_cast<double>(from));
  else if constexpr (std::same_as<To, bool>)
    return to_double(from) != 0;
  else if constexpr (!FloatingElement<To>)
    return detail::truncate<To>(to_double(from));
  else if constexpr (std::same_as<From, double>)
    return from_double<To>(from);
  else
    return from_float<To>(to_float(from));
}

}  // namespace flatshard
