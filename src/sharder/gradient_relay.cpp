#include "gradient_relay.hpp"

#include <flatshard/core/error.hpp>

#include "plan_build.hpp"

namespace flatshard::detail {

GradientRelay::GradientRelay(Runtime& runtime) : runtime_(runtime) {
  for (int slot = 0; slot < runtime.plan.relay_slots; ++slot)
    slots_.push_back({runtime.address(Role::Staging, staging_relay, slot), runtime.make_event(),
                      runtime.make_event()});
}

void GradientRelay::take(int flat, const std::byte* reduced, Event& left) {
  FLATSHARD_EXPECTS(is_empty(), "a gradient is on its way to the host: discard_step()");
  flat_ = flat;
  reduced_ = reduced;
  left_ = &left;
}

const std::byte* GradientRelay::bring(Elements from, Elements count) {
  const Bytes size = size_of(runtime_.flat(flat_).reduce);
  Slot& slot = slots_[next_];
  runtime_.download.wait(*slot.free);
  runtime_.device.copy(reduced_ + from * size, slot.data, count * size, runtime_.download);
  runtime_.order(runtime_.download, *slot.arrived, runtime_.host);
  return slot.data;
}

void GradientRelay::release() {
  runtime_.host.record(*slots_[next_].free);
  next_ = (next_ + 1) % slots_.size();
}

void GradientRelay::finish() {
  runtime_.download.record(*left_);
  flat_ = -1;
}

}  // namespace flatshard::detail
