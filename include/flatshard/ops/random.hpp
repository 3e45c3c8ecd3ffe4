// Random words as a pure function of (seed, step, role, canonical index), so that they know nothing
// of ranks, slices or threads; and stochastic rounding from them.
#pragma once

#include <flatshard/core/bits.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <cstdint>

namespace flatshard {

/// What a random word is for: words of different roles are unrelated.
namespace random_role {
inline constexpr std::uint32_t master = 0;           // stochastic rounding of the parameter
inline constexpr std::uint32_t first_state = 1;      // of state k: first_state + k
inline constexpr std::uint32_t initialisation = 16;  // ops/init.hpp
}  // namespace random_role

/// The mixer of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13), a
/// bijection of 64-bit words.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS constexpr std::uint64_t mix64(
    std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Key of the words of all indices whose high 32 bits are equal.
struct RandomKey {
  std::uint32_t low;   // mixed into the index
  std::uint32_t high;  // added on the way
  friend constexpr bool operator==(RandomKey, RandomKey) = default;
};

/// key == mix64(mix64(mix64(seed) ^ step) ^ (role << 32 | index_high)).
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE constexpr RandomKey random_key(std::uint64_t seed,
                                                                      std::uint64_t step,
                                                                      std::uint32_t role,
                                                                      std::uint32_t index_high) {
  const std::uint64_t place = (static_cast<std::uint64_t>(role) << 32) | index_high;
  const std::uint64_t key = mix64(mix64(mix64(seed) ^ step) ^ place);
  return {static_cast<std::uint32_t>(key & 0xffffffffU), static_cast<std::uint32_t>(key >> 32)};
}

/// The word of the index with these low 32 bits: for one key a bijection, so that 2^32 consecutive
/// indices see every word once.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS constexpr std::uint32_t random_word(
    RandomKey key, std::uint32_t index_low) {
  std::uint32_t x = index_low ^ key.low;
  x ^= x >> 17;
  x *= 0xed5ad4bbU;
  x ^= x >> 11;
  x += key.high;
  x *= 0xac4c1b51U;
  x ^= x >> 15;
  x *= 0x31848babU;
  return x ^ (x >> 14);
}

/// The same from a whole index.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE constexpr std::uint32_t random_word(std::uint64_t seed,
                                                                           std::uint64_t step,
                                                                           std::uint32_t role,
                                                                           std::uint64_t index) {
  return random_word(random_key(seed, step, role, static_cast<std::uint32_t>(index >> 32)),
                     static_cast<std::uint32_t>(index & 0xffffffffU));
}

/// `value` rounded up in magnitude with the probability that is its distance from the lower bf16 in
/// units of the spacing, if the upper 16 bits of `word` are uniform (they are the ones used); bf16
/// values, zeros and infinities stay what they are. NaN gives 0x7fff.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE FLATSHARD_WRAPS Bf16 stochastic_bf16(float value,
                                                                            std::uint32_t word) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = (bits + (word >> 16)) >> 16;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fffU : rounded)};
}

}  // namespace flatshard
