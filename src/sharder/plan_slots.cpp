// Files of what rests on NVMe: a slot for each part of each flat, buffers as large as the largest
// unit.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "plan_bytes.hpp"

namespace flatshard::detail {

namespace {

constexpr Bytes page = SlotStore::alignment;  // bytes

NvmePart part_of(Role role) {
  if (role == Role::Master || role == Role::State) return NvmePart::Optimizer;
  return role == Role::Compute ? NvmePart::Parameters : NvmePart::Gradient;
}

/// Blocks that belong to the slot lie in it; false: there are none.
bool fill(NvmeSlot& slot, std::vector<Block>& blocks) {
  Bytes bytes = 0;
  for (Block& block : blocks) {
    if (block.owner != slot.flat || part_of(block.role) != slot.part) continue;
    block.offset = add_bytes(slot.offset, bytes);
    bytes = add_bytes(bytes, round_up_bytes(block.bytes));
  }
  slot.bytes = checked_round_up(bytes, page, "make_plan: bytes");
  return bytes > 0;
}

/// Slots of a flat's parts, one after the other; `in_buffer` is what its unit fills so far.
void add_slots(NvmeFile& file, int flat, std::initializer_list<NvmePart> parts, Bytes& in_buffer,
               std::vector<Block>& blocks) {
  for (const NvmePart part : parts) {
    NvmeSlot slot{part, flat, file.bytes, 0, in_buffer};
    if (!fill(slot, blocks)) continue;
    file.bytes = add_bytes(file.bytes, slot.bytes);
    in_buffer = add_bytes(in_buffer, slot.bytes);
    file.slots.push_back(slot);
  }
}

void cut(NvmeFile& file, const Plan& plan, std::initializer_list<NvmePart> parts,
         std::vector<Block>& blocks, int buffers) {
  int units = 0;
  for (const UnitPlan& unit : plan.units) {
    Bytes in_buffer = 0;
    for (const int flat : unit.flats) add_slots(file, flat, parts, in_buffer, blocks);
    units += in_buffer > 0;
    file.buffer_bytes = std::max(file.buffer_bytes, in_buffer);
  }
  file.buffers = std::min(buffers, units);
}

}  // namespace

void plan_slots(Plan& plan, std::vector<Block>& blocks, const Options& options) {
  const OffloadTraits& tiers = plan.request.offload;
  if (tiers.parameters != Tier::Nvme && tiers.optimizer != Tier::Nvme) return;
  FLATSHARD_EXPECTS(
      options.nvme.buffers >= 1,
      fmt::format("nvme.buffers is {}: at least one unit must be in memory", options.nvme.buffers));
  plan.nvme_block_bytes = options.nvme.block_bytes;
  FLATSHARD_EXPECTS(
      plan.nvme_block_bytes > 0 && plan.nvme_block_bytes % page == 0,
      fmt::format("nvme.block_bytes is {}, not a multiple of {}", plan.nvme_block_bytes, page));
  cut(plan.optimizer_file, plan, {NvmePart::Optimizer, NvmePart::Gradient}, blocks,
      options.nvme.buffers);
  cut(plan.parameter_file, plan, {NvmePart::Parameters}, blocks, options.nvme.buffers);
}

}  // namespace flatshard::detail
