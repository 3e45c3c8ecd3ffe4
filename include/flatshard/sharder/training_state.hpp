// What training leaves behind from step to step: where elements lie on this rank, and the numbers
// beside them. For checkpoints; a user needs neither.
#pragma once

#include <flatshard/core/types.hpp>
#include <flatshard/ops/loss_scale.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flatshard {

/// Memory of one flat on this rank that everything else is made from, on the tier where it rests.
/// All pointers are null for a flat without elements.
struct FlatState {
  std::byte* master = nullptr;     // (slice) master dtype; frozen: compute dtype
  std::byte* whole = nullptr;      // (padded) of a frozen flat that is always whole: all of it must
                                   // be set; `master` then points into it
  std::vector<std::byte*> states;  // each (slice), state dtype; frozen: none
};

/// Equal on every rank.
struct TrainingState {
  std::int64_t steps = 0;                            // concluded, skipped ones included
  LossScaler loss_scaler = LossScaler::constant(1);  // restored where the rule is the same
  std::uint64_t seed = 0;                            // of stochastic rounding
  std::vector<std::int64_t> times;                   // per flat: updates that it has had
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// True when the state of `from` means the same under the rule of `to`: the same rule, and one that
/// moves. A constant scale is a setting, not a state.
inline bool carries_on(const LossScaler& from, const LossScaler& to) {
  return from.settings.rule == to.settings.rule && to.settings.rule != ScaleRule::Constant;
}

}  // namespace flatshard
