#include "units_ahead.hpp"

#include <algorithm>

#include "plan_build.hpp"
#include "runtime.hpp"

namespace flatshard::detail {

UnitsAhead::UnitsAhead(Runtime& runtime, std::span<const NvmePart> parts,
                       const std::vector<bool>* takes_part)
    : runtime_(runtime),
      slots_(runtime.optimizer_slots.get()),
      parts_(parts),
      takes_part_(takes_part) {}

bool UnitsAhead::takes_part(int flat) const {
  return takes_part_ == nullptr || (*takes_part_)[static_cast<std::size_t>(flat)];
}

/// All buffers but one, from which the unit before is still being written.
void UnitsAhead::read_ahead() {
  const int most = std::max(1, slots_->buffers() - 1);
  for (; next_ < count_of(runtime_.plan.units) && begun_ < most; ++next_) {
    if (!slots_->holds(next_)) continue;
    ++begun_;
    slots_->begin(next_);
    for (const int flat : runtime_.unit(next_).flats)
      for (const NvmePart part : parts_)
        if (takes_part(flat)) slots_->read(part, flat);
  }
}

void UnitsAhead::await(int unit) {
  if (slots_ == nullptr || !slots_->holds(unit)) return;
  read_ahead();
  for (const int flat : runtime_.unit(unit).flats)
    for (const NvmePart part : parts_)
      if (takes_part(flat)) slots_->await(part, flat);
}

void UnitsAhead::leave(int unit) {
  if (slots_ != nullptr && slots_->holds(unit)) --begun_;
}

}  // namespace flatshard::detail
