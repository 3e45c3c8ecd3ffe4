#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstdlib>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

constexpr Bytes block_alignment = 128;         // bytes
constexpr Bytes colliding_period = 1LL << 27;  // bytes; streams that far apart share cache sets
constexpr Bytes skew = 128 * 1024;             // bytes; see DESIGN.md, Host kernels

/// Lays blocks one after the other; streams that a step reads together are kept from colliding.
class Arena {
 public:
  explicit Arena(Plan& plan) : plan_(plan) {}

  void add(Role role, int owner, int index, Bytes bytes) {
    if (bytes == 0) return;
    Bytes offset = round_up(plan_.arena_bytes, block_alignment);
    while (collides(offset)) offset += skew;
    plan_.blocks.push_back({role, owner, index, offset, bytes});
    plan_.arena_bytes = offset + bytes;
    group_.push_back(offset);
  }
  /// Blocks added from here on are streamed together, apart from earlier ones.
  void new_group() { group_.clear(); }

 private:
  bool collides(Bytes offset) const {
    return std::any_of(group_.begin(), group_.end(), [&](Bytes other) {
      const Bytes apart = (offset - other) % colliding_period;
      const Bytes distance = std::min(apart, colliding_period - apart);
      return offset - other >= colliding_period / 2 && distance < skew;
    });
  }

  Plan& plan_;
  std::vector<Bytes> group_;
};

Bytes slice_bytes(const Flat& flat, DType dtype) { return flat.partition.slice() * size_of(dtype); }
Bytes whole_bytes(const Flat& flat, DType dtype) {
  return flat.partition.padded() * size_of(dtype);
}

/// Bytes of every unit's part in the rings; where each flat lies in them.
void size_units(Plan& plan) {
  for (UnitPlan& unit : plan.units)
    for (int index : unit.flats) {
      Flat& flat = plan.flats[static_cast<std::size_t>(index)];
      if (flat.whole != ParametersWhole::Always) unit.gathered_elements += flat.partition.padded();
      if (flat.whole == ParametersWhole::PerUse) {
        flat.gather_offset = unit.ring_bytes;
        unit.ring_bytes += round_up(whole_bytes(flat, flat.compute), block_alignment);
      }
      if (flat.requires_grad && !flat.gradient_in_place) {
        flat.gradient_offset = unit.gradient_bytes;
        unit.gradient_bytes += round_up(whole_bytes(flat, flat.compute), block_alignment);
      }
    }
}

void size_rings(Plan& plan, const Options& options) {
  const int ahead = std::max(options.prefetch_forward,
                             options.prefetch_backward == BackwardPrefetch::None ? 0 : 1);
  int gathering = 0;
  int reducing = 0;
  for (const UnitPlan& unit : plan.units) {
    gathering += unit.ring_bytes > 0;
    plan.gather_slot_bytes = std::max(plan.gather_slot_bytes, unit.ring_bytes);
    if (unit.dedicated) continue;
    reducing += unit.gradient_bytes > 0;
    plan.gradient_slot_bytes = std::max(plan.gradient_slot_bytes, unit.gradient_bytes);
  }
  plan.gather_slots = std::min(gathering, 1 + ahead);
  plan.gradient_slots = std::min(reducing, 2);  // one is written while another is reduced
}

/// A reduced slice lands in scratch first unless it can be stored as the accumulated gradient.
void size_scratch(Plan& plan) {
  for (const Flat& flat : plan.flats) {
    if (!flat.requires_grad) continue;
    const bool adds = plan.max_micro_steps > 1 && plan.accumulation == Accumulation::Running &&
                      plan.moment != ReduceMoment::Boundary;
    const DType wide = wide_of(contribution_of(flat, plan.moment));
    const bool partial = plan.moment == ReduceMoment::ReplicaBoundary;
    const DType landing = partial ? wide : flat.reduce;
    if (adds || landing != flat.accumulate)
      plan.landing_bytes = std::max(plan.landing_bytes, slice_bytes(flat, landing));
    if (partial && flat.reduce != flat.accumulate)
      plan.landing_bytes = std::max(plan.landing_bytes, slice_bytes(flat, flat.reduce));
    const bool two_levels = plan.shard_group > 1 && plan.replicas > 1 && !partial;
    if (two_levels && flat.reduce != wide)
      plan.wide_bytes = std::max(plan.wide_bytes, slice_bytes(flat, wide));
  }
}

/// Blocks that the optimizer step streams together.
void add_step_blocks(Arena& arena, const Plan& plan, const Flat& flat, int index) {
  const bool always = flat.whole == ParametersWhole::Always;
  arena.new_group();
  if (flat.requires_grad && !(always && flat.master_is_compute))
    arena.add(Role::Master, index, 0, slice_bytes(flat, flat.master));
  if (!always && !(flat.requires_grad && flat.master_is_compute))
    arena.add(Role::Compute, index, 0, slice_bytes(flat, flat.compute));
  if (flat.whole != ParametersWhole::PerUse)
    arena.add(Role::Whole, index, 0, whole_bytes(flat, flat.compute));
  if (!flat.requires_grad) return;
  const bool boundary = plan.moment == ReduceMoment::Boundary;
  const Bytes gradient =
      boundary ? whole_bytes(flat, flat.accumulate) : slice_bytes(flat, flat.accumulate);
  arena.add(Role::Gradient, index, 0, gradient);
  for (int state = 0; state < plan.request.optimizer_states; ++state)
    arena.add(Role::State, index, state, slice_bytes(flat, flat.state));
  for (int sum = 0; sum < plan.partial_sums; ++sum) arena.add(Role::Partial, index, sum, gradient);
}

void add_flat_blocks(Arena& arena, const Plan& plan) {
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index) {
    const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
    add_step_blocks(arena, plan, flat, index);
    if (plan.request.strategy.secondary_shard && flat.whole == ParametersWhole::PerUse)
      arena.add(Role::Secondary, index, 0, whole_bytes(flat, flat.compute) / plan.secondary_group);
  }
}

void add_ring_blocks(Arena& arena, const Plan& plan) {
  arena.new_group();
  for (int slot = 0; slot < plan.gather_slots; ++slot)
    arena.add(Role::GatherRing, slot, 0, plan.gather_slot_bytes);
  for (int slot = 0; slot < plan.gradient_slots; ++slot)
    arena.add(Role::GradientRing, slot, 0, plan.gradient_slot_bytes);
  for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit)
    if (plan.units[static_cast<std::size_t>(unit)].dedicated)
      arena.add(Role::GradientUnit, unit, 0,
                plan.units[static_cast<std::size_t>(unit)].gradient_bytes);
  arena.add(Role::Scratch, 0, 0, plan.landing_bytes);
  arena.add(Role::Scratch, 1, 0, plan.wide_bytes);
}

void add_control_blocks(Arena& arena, const Plan& plan, const Model& model) {
  const Bytes value = sizeof(double);
  const auto flats = static_cast<Bytes>(plan.flats.size());
  arena.add(Role::Control, control_state, 0, sizeof(DeviceControl));
  arena.add(Role::Control, control_times, 0, 2 * flats * static_cast<Bytes>(sizeof(std::int64_t)));
  arena.add(Role::Control, control_norm, 0, norm_passes * norm_values(plan) * value);
  for (int buffer = 0; buffer < static_cast<int>(model.buffers().size()); ++buffer) {
    const BufferSpec& spec = model.buffers()[static_cast<std::size_t>(buffer)];
    arena.add(Role::RegisteredData, buffer, 0, spec.numel() * size_of(spec.dtype));
  }
}

/// What must be whole at once: everything kept for the step, and the largest unit of the ring.
void check_cap(const Plan& plan, const Options& options) {
  Elements kept = 0;
  Elements largest = 0;
  for (const UnitPlan& unit : plan.units) {
    if (unit.ring_bytes > 0)
      largest = std::max(largest, unit.gathered_elements);
    else
      kept += unit.gathered_elements;
  }
  FLATSHARD_EXPECTS(options.max_live_elements >= kept + largest,
                    fmt::format("max_live_elements is {}, but the strategy must hold {} gathered "
                                "elements at once",
                                options.max_live_elements, kept + largest));
}

}  // namespace

void plan_memory(Plan& plan, const Model& model, const Options& options) {
  FLATSHARD_EXPECTS(options.prefetch_forward >= 0,
                    fmt::format("prefetch_forward is {}, not a count", options.prefetch_forward));
  size_units(plan);
  check_cap(plan, options);
  size_rings(plan, options);
  size_scratch(plan);
  Arena arena(plan);
  add_flat_blocks(arena, plan);
  add_ring_blocks(arena, plan);
  add_control_blocks(arena, plan, model);
  plan.arena_bytes = round_up(plan.arena_bytes, block_alignment);
}

}  // namespace flatshard::detail
