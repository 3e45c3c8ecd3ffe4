#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace flatshard_test {

/// Seed of this run: FLATSHARD_TEST_SEED when set, else a fresh one. main() prints it when a test
/// fails.
std::uint64_t seed();

/// A generator for one test: same seed and same stream give the same numbers.
inline std::mt19937_64 generator(std::uint64_t stream = 0) {
  return std::mt19937_64{seed() + stream * 0x9e3779b97f4a7c15};
}

/// FLATSHARD_TEST_SHORT is set: every code path, but fewer sizes, for tools that slow a test down a
/// hundred times.
inline bool short_run() { return std::getenv("FLATSHARD_TEST_SHORT") != nullptr; }

}  // namespace flatshard_test
