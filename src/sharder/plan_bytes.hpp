// Sizes in bytes that refuse to wrap around.
#pragma once

#include <flatshard/layout/checked.hpp>

#include "plan_build.hpp"

namespace flatshard::detail {

inline constexpr Bytes block_alignment = 128;  // bytes

inline Bytes add_bytes(Bytes left, Bytes right) {
  return checked_add(left, right, "make_plan: bytes");
}
/// The next multiple of block_alignment.
inline Bytes round_up_bytes(Bytes bytes) {
  return checked_round_up(bytes, block_alignment, "make_plan: bytes");
}
inline Bytes bytes_of(Elements count, DType dtype) {
  return checked_multiply(count, size_of(dtype), "make_plan: bytes");
}
inline Bytes slice_bytes(const Flat& flat, DType dtype) {
  return bytes_of(flat.partition.slice(), dtype);
}
inline Bytes whole_bytes(const Flat& flat, DType dtype) {
  return bytes_of(flat.partition.padded(), dtype);
}

}  // namespace flatshard::detail
