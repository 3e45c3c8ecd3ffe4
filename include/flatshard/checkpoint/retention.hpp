// Which older checkpoints go when a new one is there.
#pragma once

#include <cstdint>
#include <vector>

namespace flatshard {

/// Kept are the newest keep_last steps, all multiples of keep_every, and the one just saved.
struct Retention {
  std::int64_t keep_last = 0;   // 0: all
  std::int64_t keep_every = 0;  // 0: none for that reason
  friend bool operator==(const Retention&, const Retention&) = default;
};

/// The steps among `steps` that go, ascending. Throws UsageError for a negative setting.
std::vector<std::int64_t> steps_to_remove(const Retention& retention,
                                          std::vector<std::int64_t> steps, std::int64_t saved);

}  // namespace flatshard
