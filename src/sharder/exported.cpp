#include <flatshard/sharder/exported.hpp>

namespace flatshard {

ExportedShard export_local(const Engine& engine, int parameter,
                           const std::shared_ptr<const void>& keeps_alive) {
  const LocalShard local = engine.local(parameter);
  const Plan& plan = engine.plan();
  const auto index = static_cast<std::size_t>(parameter);
  const Flat& flat = plan.flats[static_cast<std::size_t>(plan.flat_of_parameter[index])];
  const std::array shape{local.count};
  const Tier tier = flat.requires_grad ? plan.request.offload.optimizer : flat.parameters_rest;
  const auto place = tier == Tier::Device ? dlpack::device_of(engine.device()) : dlpack::DLDevice{};
  const auto export_run = [&](const std::byte* data, DType dtype, bool writable) {
    return dlpack::export_memory({data, dtype, shape, place, writable}, keeps_alive);
  };
  ExportedShard shard{
      local.offset, local.count, export_run(local.master, flat.master, false), nullptr, {}};
  if (!flat.requires_grad) return shard;
  shard.gradient = export_run(local.gradient, flat.accumulate, true);
  const int states = plan.request.optimizer_states;
  for (int state = 0; state < states; ++state) {
    const auto at = static_cast<std::size_t>(state);
    const std::byte* data = at < local.states.size() ? local.states[at] : nullptr;
    shard.states.push_back(export_run(data, flat.state, true));
  }
  return shard;
}

}  // namespace flatshard
