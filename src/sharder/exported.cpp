#include <flatshard/sharder/exported.hpp>

namespace flatshard {

namespace {

/// Where a block of the Plan lies; none: where the device's memory is.
dlpack::DLDevice place_of(const Engine& engine, const Block* block) {
  Device& device = engine.device();
  if (block == nullptr || block->memory == Memory::Device) return dlpack::device_of(device);
  const bool pinned = block->memory == Memory::Pinned && device.kind() == DeviceKind::Cuda &&
                      engine.has_pinned_memory();
  return {pinned ? dlpack::DeviceType::CudaHost : dlpack::DeviceType::Cpu, 0};
}

}  // namespace

ExportedShard export_local(const Engine& engine, int parameter,
                           const std::shared_ptr<const void>& keeps_alive) {
  const LocalShard local = engine.local(parameter);
  const Plan& plan = engine.plan();
  const auto index = static_cast<std::size_t>(parameter);
  const Flat& flat = plan.flats[static_cast<std::size_t>(plan.flat_of_parameter[index])];
  const std::array shape{local.count};
  const int owner = plan.flat_of_parameter[index];
  const auto export_run = [&](const Block* block, const std::byte* data, DType dtype,
                              bool writable) {
    return dlpack::export_memory({data, dtype, shape, place_of(engine, block), writable},
                                 keeps_alive);
  };
  const auto block = [&](Role first, Role second, int at = 0) {
    const Block* found = plan.block(first, owner, at);
    return found != nullptr ? found : plan.block(second, owner, at);
  };
  ExportedShard shard{local.offset,
                      local.count,
                      export_run(flat.requires_grad ? block(Role::Master, Role::Compute)
                                                    : block(Role::Compute, Role::Whole),
                                 local.master, flat.master, false),
                      nullptr,
                      {}};
  if (!flat.requires_grad) return shard;
  shard.gradient = export_run(block(Role::ReducedGradient, Role::Gradient), local.gradient,
                              flat.accumulate, true);
  const int states = plan.request.optimizer_states;
  for (int state = 0; state < states; ++state) {
    const auto at = static_cast<std::size_t>(state);
    const std::byte* data = at < local.states.size() ? local.states[at] : nullptr;
    shard.states.push_back(
        export_run(plan.block(Role::State, owner, state), data, flat.state, true));
  }
  return shard;
}

}  // namespace flatshard
