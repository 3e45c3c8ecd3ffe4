#pragma once

#include <flatshard/tensor/convert.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <cstdint>
#include <type_traits>

namespace train_gpt {

/// The type in which a model whose weights are `Compute` calculates: activations and sums.
template <class Compute>
using RealOf = std::conditional_t<std::is_same_v<Compute, double>, double, float>;

/// Weights are used where they lie when no conversion is needed.
template <class Compute>
inline constexpr bool is_direct = std::is_same_v<Compute, RealOf<Compute>>;

template <class Compute>
void widen(float* out, const Compute* in, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = flatshard::convert<float>(in[i]);
}

/// Rounds to nearest, ties to even.
template <class Compute>
void narrow(Compute* out, const float* in, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = flatshard::convert<Compute>(in[i]);
}

}  // namespace train_gpt
