#include <flatshard/checkpoint/retention.hpp>
#include <flatshard/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>

#include "random.hpp"

using namespace flatshard;
using Steps = std::vector<std::int64_t>;

TEST_CASE("the newest stay, and every m-th, and the one just saved") {
  CHECK(steps_to_remove({}, {1, 2, 3}, 3) == Steps{});
  CHECK(steps_to_remove({.keep_last = 1}, {3, 1, 2}, 3) == Steps{1, 2});
  CHECK(steps_to_remove({.keep_last = 2}, {1, 2, 3}, 3) == Steps{1});
  CHECK(steps_to_remove({.keep_last = 5}, {1, 2, 3}, 3) == Steps{});
  CHECK(steps_to_remove({.keep_last = 1, .keep_every = 10}, {0, 5, 10, 15, 20, 25}, 25) ==
        Steps{5, 15});
  CHECK(steps_to_remove({.keep_every = 10}, {5, 10, 15}, 15) == Steps{});
  CHECK(steps_to_remove({.keep_last = 1}, {}, 7) == Steps{});
  // Resumed from an older step: what comes after it in number is not newer in time.
  CHECK(steps_to_remove({.keep_last = 2}, {100, 150, 200, 300}, 150) == Steps{100});
  CHECK_THROWS_AS(steps_to_remove({.keep_last = -1}, {}, 0), UsageError);
  CHECK_THROWS_AS(steps_to_remove({.keep_every = -1}, {}, 0), UsageError);
}

TEST_CASE("what goes is the smallest, and never what is to be kept") {
  auto random = flatshard_test::generator();
  for (int round = 0; round < 200; ++round) {
    const Retention retention{.keep_last = static_cast<std::int64_t>(random() % 5),
                              .keep_every = static_cast<std::int64_t>(random() % 4)};
    Steps steps;
    for (std::int64_t step = 0; step < 20; ++step)
      if (random() % 2 == 0) steps.push_back(step);
    if (steps.empty()) continue;
    const std::int64_t saved = steps[random() % steps.size()];
    const Steps removed = steps_to_remove(retention, steps, saved);
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const std::int64_t step = steps[k];
      const bool newest = static_cast<std::int64_t>(steps.size() - k) <= retention.keep_last;
      const bool round_number = retention.keep_every > 0 && step % retention.keep_every == 0;
      const bool stays = retention.keep_last == 0 || newest || round_number || step == saved;
      CHECK((std::find(removed.begin(), removed.end(), step) == removed.end()) == stays);
    }
  }
}
