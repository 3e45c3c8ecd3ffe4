#pragma once

#include <flatshard/core/types.hpp>

#include <random>
#include <vector>

#include "random.hpp"

namespace flatshard_test {

using Random = std::mt19937_64;

/// A whole number of [low, high].
inline std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>{low, high}(random);
}

/// Sizes of up to 8 parameters: the edges 0 and 1 are as likely as all others together.
inline std::vector<flatshard::Elements> random_numels(Random& random) {
  std::vector<flatshard::Elements> numels(static_cast<std::size_t>(between(random, 0, 8)));
  for (auto& numel : numels) {
    const auto kind = between(random, 0, 3);
    numel = kind < 2 ? kind : between(random, 2, kind == 2 ? 40 : 600);
  }
  return numels;
}

/// Alignments: 128 bytes of each dtype, the field's 8, none, and any other up to 64.
inline flatshard::Elements random_alignment(Random& random) {
  constexpr flatshard::Elements usual[] = {1, 8, 16, 32, 64, 128};
  return between(random, 0, 1) == 0 ? usual[between(random, 0, 5)] : between(random, 1, 64);
}

}  // namespace flatshard_test
