// The dtype table: one row per element type. Everything that depends on a dtype reads it here.
#pragma once

#include <flatshard/core/types.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace flatshard {

/// The element types of tensors and files.
enum class DType : std::uint8_t {
  Float64,
  Float32,
  BFloat16,
  Float16,
  Float8E4M3,
  Float8E5M2,
  Int64,
  Int32,
  Int8,
  UInt8,
  Bool
};

// Storage types: bits only, arithmetic goes through float (tensor/convert.hpp).
/// Brain float: sign, 8 bits of exponent, 7 of fraction.
struct Bf16 {
  std::uint16_t bits;                                      // as in memory
  friend constexpr bool operator==(Bf16, Bf16) = default;  // equality of bits
};
/// IEEE binary16: sign, 5 bits of exponent, 10 of fraction.
struct Half {
  std::uint16_t bits;  // as in memory
  friend constexpr bool operator==(Half, Half) = default;
};
/// OCP fp8 with 4 bits of exponent, 3 of fraction, no infinity. Storage only.
struct Float8E4M3 {
  std::uint8_t bits;  // as in memory
  friend constexpr bool operator==(Float8E4M3, Float8E4M3) = default;
};
/// OCP fp8 with 5 bits of exponent, 2 of fraction. Storage only.
struct Float8E5M2 {
  std::uint8_t bits;  // as in memory
  friend constexpr bool operator==(Float8E5M2, Float8E5M2) = default;
};

/// One row of the table.
struct DTypeInfo {
  DType dtype;                   // of this row
  std::string_view name;         // as in messages and options
  Bytes bytes;                   // of one element
  bool floating;                 // may be a trainable parameter's dtype
  std::string_view safetensors;  // name in safetensors headers
  std::string_view nccl;         // ncclDataType_t's enumerator
};

/// In the order of DType.
inline constexpr std::array<DTypeInfo, 11> dtype_table{{
    {DType::Float64, "float64", 8, true, "F64", "ncclFloat64"},
    {DType::Float32, "float32", 4, true, "F32", "ncclFloat32"},
    {DType::BFloat16, "bfloat16", 2, true, "BF16", "ncclBfloat16"},
    {DType::Float16, "float16", 2, true, "F16", "ncclFloat16"},
    {DType::Float8E4M3, "float8_e4m3", 1, true, "F8_E4M3", "ncclFloat8e4m3"},
    {DType::Float8E5M2, "float8_e5m2", 1, true, "F8_E5M2", "ncclFloat8e5m2"},
    {DType::Int64, "int64", 8, false, "I64", "ncclInt64"},
    {DType::Int32, "int32", 4, false, "I32", "ncclInt32"},
    {DType::Int8, "int8", 1, false, "I8", "ncclInt8"},
    {DType::UInt8, "uint8", 1, false, "U8", "ncclUint8"},
    {DType::Bool, "bool", 1, false, "BOOL", "ncclUint8"},
}};

/// The row of a dtype.
constexpr const DTypeInfo& info(DType dtype) {
  return dtype_table[static_cast<std::size_t>(dtype)];
}
/// Bytes of one element.
constexpr Bytes size_of(DType dtype) { return info(dtype).bytes; }
/// As in messages and options: "bfloat16".
constexpr std::string_view name_of(DType dtype) { return info(dtype).name; }
/// May be the dtype of a trainable parameter.
constexpr bool is_floating(DType dtype) { return info(dtype).floating; }
/// True when every value of `from` is one of `to`, both floating.
constexpr bool holds_exactly(DType to, DType from) {
  if (to == from || to == DType::Float64) return true;
  if (from == DType::Float64) return false;
  if (to == DType::Float32) return true;
  const bool narrow = size_of(from) == 1;  // both fp8 formats fit into both 16-bit ones
  return narrow && size_of(to) == 2;
}

namespace detail {
template <class Element>
struct DTypeOf;  // an element type without a row in the table does not compile
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::Float64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::Float32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::BFloat16;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::Float16;
};
template <>
struct DTypeOf<Float8E4M3> {
  static constexpr DType value = DType::Float8E4M3;
};
template <>
struct DTypeOf<Float8E5M2> {
  static constexpr DType value = DType::Float8E5M2;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::Int64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::Int32;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::Int8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::UInt8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::Bool;
};
}  // namespace detail

/// dtype_of<float> == DType::Float32, and so on.
template <class Element>
inline constexpr DType dtype_of = detail::DTypeOf<Element>::value;

}  // namespace flatshard
