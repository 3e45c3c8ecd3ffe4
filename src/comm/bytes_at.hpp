// Places in untyped memory, for communicators.
#pragma once

#include <flatshard/core/types.hpp>

#include <cstddef>
#include <cstdint>

namespace flatshard::detail {

inline std::size_t unsigned_of(std::int64_t value) { return static_cast<std::size_t>(value); }
inline const std::byte* bytes_at(const void* data, Bytes offset) {
  return static_cast<const std::byte*>(data) + offset;
}
inline std::byte* bytes_at(void* data, Bytes offset) {
  return static_cast<std::byte*>(data) + offset;
}

}  // namespace flatshard::detail
