// Initial values: pure functions of (seed, canonical index), so the same for every world size,
// strategy and wrapping.
#pragma once

#include <flatshard/core/types.hpp>
#include <flatshard/ops/normal.hpp>
#include <flatshard/ops/random.hpp>

#include <variant>

namespace flatshard {

/// Each value(index) is formed in double; fill rounds it once to the master's dtype.
namespace init {

/// 64 random bits of an element.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE std::uint64_t word(std::uint64_t seed, Elements index) {
  const auto place = static_cast<std::uint64_t>(index);
  const std::uint32_t high = random_word(seed, 0, random_role::initialisation, place);
  const std::uint32_t low = random_word(seed, 0, random_role::initialisation + 1, place);
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

/// Normal, mean 0; |value| < 8.3 stddev; |error| < 1e-9 stddev.
struct normal {
  double stddev = 1;       // >= 0
  std::uint64_t seed = 0;  // other seed, other values
  /// Of the element with this canonical index.
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double value(Elements index) const {
    return exact::mul(stddev, standard_normal(word(seed, index)));
  }
};

/// Uniform in [lo, hi); hi itself can appear by rounding to the dtype.
struct uniform {
  double lo = 0;           // least value
  double hi = 1;           // end of the range, >= lo
  std::uint64_t seed = 0;  // other seed, other values
  /// Of the element with this canonical index.
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double value(Elements index) const {
    const double width = exact::add(hi, -lo);
    return exact::fma(width, standard_uniform(word(seed, index)), lo);
  }
};

/// The same everywhere.
struct constant {
  double v = 0;  // every value
  /// v.
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double value(Elements) const { return v; }
};

/// Zero everywhere.
struct zeros {
  /// 0.
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double value(Elements) const { return 0; }
};

}  // namespace init

/// What Sharder::initialize takes.
using Initializer = std::variant<init::normal, init::uniform, init::constant, init::zeros>;

/// destination[i] == value(canonical_begin + i), rounded once to `dtype`, for 0 <= i < count; host
/// memory. Throws UsageError for a dtype that is not floating and for an initializer out of range.
void fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical_begin,
          Elements count);

}  // namespace flatshard
