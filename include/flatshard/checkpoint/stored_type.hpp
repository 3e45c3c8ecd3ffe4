// Element types of safetensors files: one row per name that the format knows. More than our own
// dtype table: what we cannot compute with is still carried as bytes.
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flatshard::safetensors {

/// Every element type that the format knows.
enum class StoredType : std::uint8_t {
  Bool,
  F4,
  F6E2M3,
  F6E3M2,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  F8E8M0,
  F8E4M3FNUZ,
  F8E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64
};

/// One row of the table.
struct StoredTypeInfo {
  StoredType type;             // of this row
  std::string_view name;       // as in headers; case counts
  int bits;                    // of one element; below 8: a tensor must still fill whole bytes
  std::optional<DType> dtype;  // ours, where we have one
};

/// In the order of StoredType.
inline constexpr std::array<StoredTypeInfo, 22> stored_type_table{{
    {StoredType::Bool, "BOOL", 8, DType::Bool},
    {StoredType::F4, "F4", 4, std::nullopt},
    {StoredType::F6E2M3, "F6_E2M3", 6, std::nullopt},
    {StoredType::F6E3M2, "F6_E3M2", 6, std::nullopt},
    {StoredType::U8, "U8", 8, DType::UInt8},
    {StoredType::I8, "I8", 8, DType::Int8},
    {StoredType::F8E5M2, "F8_E5M2", 8, DType::Float8E5M2},
    {StoredType::F8E4M3, "F8_E4M3", 8, DType::Float8E4M3},
    {StoredType::F8E8M0, "F8_E8M0", 8, std::nullopt},
    {StoredType::F8E4M3FNUZ, "F8_E4M3FNUZ", 8, std::nullopt},
    {StoredType::F8E5M2FNUZ, "F8_E5M2FNUZ", 8, std::nullopt},
    {StoredType::I16, "I16", 16, std::nullopt},
    {StoredType::U16, "U16", 16, std::nullopt},
    {StoredType::F16, "F16", 16, DType::Float16},
    {StoredType::BF16, "BF16", 16, DType::BFloat16},
    {StoredType::I32, "I32", 32, DType::Int32},
    {StoredType::U32, "U32", 32, std::nullopt},
    {StoredType::F32, "F32", 32, DType::Float32},
    {StoredType::C64, "C64", 64, std::nullopt},
    {StoredType::F64, "F64", 64, DType::Float64},
    {StoredType::I64, "I64", 64, DType::Int64},
    {StoredType::U64, "U64", 64, std::nullopt},
}};

/// The row of a type.
constexpr const StoredTypeInfo& info(StoredType type) {
  return stored_type_table[static_cast<std::size_t>(type)];
}
/// As in headers: "BF16".
constexpr std::string_view name_of(StoredType type) { return info(type).name; }

/// The type of that name; nothing when the format has none.
constexpr std::optional<StoredType> stored_type_named(std::string_view name) {
  for (const StoredTypeInfo& row : stored_type_table) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

/// The type that holds our dtype: name_of(stored_type_of(d)) == info(d).safetensors.
constexpr StoredType stored_type_of(DType dtype) {
  return *stored_type_named(flatshard::info(dtype).safetensors);
}

}  // namespace flatshard::safetensors
