#include <flatshard/checkpoint/retention.hpp>
#include <flatshard/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace flatshard {

std::vector<std::int64_t> steps_to_remove(const Retention& retention,
                                          std::vector<std::int64_t> steps, std::int64_t saved) {
  FLATSHARD_EXPECTS(retention.keep_last >= 0 && retention.keep_every >= 0,
                    fmt::format("retention: keep_last {} and keep_every {} may not be negative",
                                retention.keep_last, retention.keep_every));
  if (retention.keep_last == 0) return {};
  std::sort(steps.begin(), steps.end());
  const auto count = static_cast<std::int64_t>(steps.size());
  steps.resize(static_cast<std::size_t>(std::max<std::int64_t>(count - retention.keep_last, 0)));
  std::erase_if(steps, [&](std::int64_t step) {
    return step == saved || (retention.keep_every > 0 && step % retention.keep_every == 0);
  });
  return steps;
}

}  // namespace flatshard
