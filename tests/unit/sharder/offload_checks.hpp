// Trainings with offload to host memory beside the same without.
#pragma once

#include <doctest/doctest.h>

#include "offload.hpp"

namespace sharder_test {

inline Trained trained_at(Training training, const OffloadTraits& offload) {
  training.options.offload = offload;
  return train(training);
}

/// Equal to the same training without offload, in every bit of masters, states, norms.
inline void check_same(const Training& training, const OffloadTraits& offload,
                       std::uint64_t expected) {
  CAPTURE(to_string(training));
  CAPTURE(to_string(offload));
  const Trained trained = trained_at(training, offload);
  CHECK(trained.replicas_agree);
  CHECK(trained.hash() == expected);
}

/// Of four micro-batches, over however many ranks.
inline std::uint64_t hash_at_four() {
  static const std::uint64_t hash = train(clipped(StrategyName::NoShard, 1, 4)).hash();
  return hash;
}

/// At every place on the host; also when what is longer than a few elements passes in parts.
inline void check_all(Training training) {
  const std::uint64_t expected = train(training).hash();
  for (const OffloadTraits& offload : offloads) check_same(training, offload, expected);
  training.options.update_part = 9;
  for (const OffloadTraits& offload : offloads) check_same(training, offload, expected);
}

}  // namespace sharder_test
