#include <flatshard/layout/canonical.hpp>

#include <flatshard/layout/checked.hpp>

namespace flatshard {

CanonicalIndex::CanonicalIndex(std::span<const Elements> numels)
    : starts_(detail::aligned_starts(numels, canonical_alignment, "CanonicalIndex")),
      size_(detail::checked_round_up(starts_.back(), canonical_alignment, "CanonicalIndex")) {
  starts_.pop_back();
}

}  // namespace flatshard
