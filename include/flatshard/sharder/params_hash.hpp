// One number for all parameters: equal exactly when every bit of every master value is (but for
// chance). Knows neither strategy, wrapping nor world size.
#pragma once

#include <flatshard/sharder/sharder.hpp>

#include <cstdint>

namespace flatshard {

namespace detail {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): hash = (hash ^ byte) * prime for each byte.
std::uint64_t hash_bytes(std::uint64_t hash, const std::byte* data, Bytes bytes);

}  // namespace detail

/// Hash of the master values (frozen: compute values) in canonical order. Collective; blocks the
/// host; gathers one module after the other, so it needs memory for the largest unit.
std::uint64_t params_hash(Engine& engine);

/// Of a Sharder.
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
std::uint64_t params_hash(Sharder<Strategy, Precision, Offload>& trainer) {
  return params_hash(trainer.engine());
}

}  // namespace flatshard
