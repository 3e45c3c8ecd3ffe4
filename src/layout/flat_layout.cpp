#include <flatshard/layout/flat_layout.hpp>

#include <flatshard/layout/checked.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace flatshard {
namespace {

Elements slice_size(Elements total, int world, Elements alignment) {
  FLATSHARD_EXPECTS(world >= 1, fmt::format("Partition: world is {}, must be at least 1", world));
  FLATSHARD_EXPECTS(total >= 0, fmt::format("Partition: {} elements in all", total));
  FLATSHARD_EXPECTS(alignment >= 1,
                    fmt::format("Partition: alignment is {}, must be at least 1", alignment));
  const Elements slice = detail::checked_round_up(ceil_div(total, world), alignment, "Partition");
  detail::checked_multiply(slice, world, "Partition");
  return slice;
}

Fragment intersection(const FlatLayout& layout, int parameter, Range slice) {
  const Range range = layout.range(parameter);
  const Elements begin = std::max(range.begin, slice.begin);
  const Elements end = std::min(range.end, slice.end);
  return {parameter, begin - range.begin, begin - slice.begin, end - begin};
}

}  // namespace

FlatLayout::FlatLayout(std::span<const Elements> numels, Elements alignment)
    : numels_(numels.begin(), numels.end()),
      starts_(detail::aligned_starts(numels, alignment, "FlatLayout")),
      alignment_(alignment),
      total_(starts_.back()) {
  starts_.pop_back();
}

Partition::Partition(Elements total, int world, Elements alignment)
    : total_(total), world_(world), slice_(slice_size(total, world, alignment)) {}

Elements Partition::padding(Rank rank) const {
  return std::clamp<Elements>(range(rank).end - total_, 0, slice_);
}

Rank Partition::owner(Elements element) const {
  FLATSHARD_EXPECTS(
      element >= 0 && element <= padded(),
      fmt::format("Partition::owner: element {} is outside [0, {}]", element, padded()));
  return element == padded() ? world_ - 1 : static_cast<Rank>(element / slice_);
}

std::vector<Fragment> fragments(const FlatLayout& layout, const Partition& partition, Rank rank) {
  FLATSHARD_EXPECTS(layout.total() <= partition.padded(),
                    fmt::format("fragments: a layout of {} elements does not fit into {}",
                                layout.total(), partition.padded()));
  FLATSHARD_EXPECTS(rank >= 0 && rank < partition.world(),
                    fmt::format("fragments: no rank {} of {}", rank, partition.world()));
  std::vector<Fragment> found;
  for (int p = 0; p < layout.parameters(); ++p) {
    const Fragment fragment = intersection(layout, p, partition.range(rank));
    const bool owned =
        layout.numel(p) == 0 ? partition.owner(layout.start(p)) == rank : fragment.count > 0;
    if (owned) found.push_back(fragment);
  }
  return found;
}

}  // namespace flatshard
