// Bits of floats, in host and device code.
#pragma once

#include <flatshard/config.hpp>

namespace flatshard {

/// The value of type To with the same bits as `from`. (std::bit_cast, which device code may not
/// call.)
template <class To, class From>
requires(sizeof(To) == sizeof(From)) FLATSHARD_INLINE FLATSHARD_HOST_DEVICE constexpr To
    bit_cast(From from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace flatshard
