// An FSDP configuration that does what a DeepSpeed one asks for.
#include "equivalent.hpp"

namespace flatshard_tool {
namespace {

const char* sharding_of(Strategy strategy) {
  if (strategy == Strategy::NoShard) return "NO_SHARD";
  if (strategy == Strategy::HybridShard) return "HYBRID_SHARD";
  const bool whole = strategy == Strategy::ShardOptimizer || strategy == Strategy::ShardGradOp;
  return whole ? "SHARD_GRAD_OP" : "FULL_SHARD";
}

void note_strategy(const Setting& setting, bool version_2, std::vector<Note>& notes) {
  if (setting.strategy == Strategy::ShardOptimizer)
    notes.push_back({none, "stage 1",
                     "FSDP has no twin; SHARD_GRAD_OP is the nearest and shards gradients and "
                     "parameters as well."});
  if (setting.strategy == Strategy::ShardGradOp)
    notes.push_back(
        {other, "stage 2",
         "SHARD_GRAD_OP also shards parameters outside computation and gathers them once "
         "a step."});
  if (setting.strategy == Strategy::FullShardSecondary)
    notes.push_back({none, "zero_hpz_partition_size",
                     "is torch's reshard_after_forward=int, which Accelerate's file cannot say; "
                     "FULL_SHARD gathers over all ranks both times."});
  if (setting.strategy == Strategy::HybridShard && !version_2)
    notes.push_back({other, "mics_shard_size",
                     "HYBRID_SHARD takes the ranks of one node as the group; another size needs "
                     "fsdp_version 2 and parallelism_config, and for that the number of ranks."});
}

void note_places(const Setting& setting, std::vector<Note>& notes) {
  const bool nvme = setting.parameters == Place::Nvme || setting.optimizer == Place::Nvme;
  if (nvme) notes.push_back({none, "nvme", "FSDP offloads to the CPU only."});
  if (!nvme && setting.parameters != setting.optimizer)
    notes.push_back(
        {none, "offload",
         "FSDP offloads parameters, gradients and optimizer together or not at all; all "
         "are, to save the same memory."});
}

void note_rest(const Setting& setting, std::vector<Note>& notes) {
  notes.push_back(
      {other, "fsdp_auto_wrap_policy",
       "DeepSpeed needs none; without fsdp_transformer_layer_cls_to_wrap the model's own "
       "_no_split_modules say what a unit is."});
  if (setting.mixed == Mixed::Bf16)
    notes.push_back({other, "reduce dtype",
                     setting.reduce == Type::Float32
                         ? "float32 as this file asks; Accelerate's FSDP reduces in bfloat16."
                         : "bfloat16 in both, under Accelerate."});
  if (setting.mixed == Mixed::Fp16)
    notes.push_back(
        {other, "fp16",
         "FSDP scales by torch's GradScaler: other intervals, no hysteresis, no minimum "
         "that raises an error."});
  if (setting.saves_16bit)
    notes.push_back({none, "zero3_save_16bit_model",
                     "FSDP saves in the flat parameters' dtype: fp32 under mixed precision."});
  if (setting.persistence.value_or(0) > 0)
    notes.push_back(
        {none, "stage3_param_persistence_threshold", "FSDP shards small parameters too."});
  if (setting.clip || setting.micro_steps > 1)
    notes.push_back({other, "gradient_accumulation_steps, gradient_clipping",
                     "are arguments of the script with FSDP (Accelerator, clip_grad_norm_)."});
}

Map own_keys(const Setting& setting, bool version_2) {
  const bool offloads = setting.parameters != Place::Device || setting.optimizer != Place::Device;
  Map fsdp = map_of({{"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}});
  const auto add = [&](const char* key, Value value) { fsdp.emplace_back(key, std::move(value)); };
  if (!version_2)
    add("fsdp_backward_prefetch",
        setting.prefetch_backward == Backward::None ? "NO_PREFETCH" : "BACKWARD_PRE");
  add("fsdp_cpu_ram_efficient_loading", setting.rank0_loads);
  if (!version_2) add("fsdp_forward_prefetch", setting.prefetch_forward);
  add("fsdp_offload_params", offloads);
  if (version_2)
    add("fsdp_reshard_after_forward", true);
  else
    add("fsdp_sharding_strategy", sharding_of(setting.strategy));
  add("fsdp_state_dict_type", setting.whole_checkpoint ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT");
  if (!version_2) add("fsdp_sync_module_states", setting.rank0_loads);
  if (!version_2) add("fsdp_use_orig_params", true);
  add("fsdp_version", version_2 ? 2 : 1);
  return fsdp;
}

}  // namespace

Equivalent fsdp_for(const Setting& setting) {
  const bool version_2 =
      setting.strategy == Strategy::HybridShard && setting.world && setting.group;
  Equivalent result;
  result.title = version_2 ? "FSDP version 2, an Accelerate configuration"
                           : "FSDP version 1, an Accelerate configuration";
  note_strategy(setting, version_2, result.notes);
  note_places(setting, result.notes);
  note_rest(setting, result.notes);
  Map changed = map_of({{"distributed_type", "FSDP"},
                        {"fsdp_config", own_keys(setting, version_2)},
                        {"mixed_precision", mixed_name(setting.mixed)}});
  if (setting.world) changed.emplace_back("num_processes", *setting.world);
  if (version_2)
    changed.emplace_back(
        "parallelism_config",
        map_of({{"parallelism_config_dp_replicate_size", *setting.world / *setting.group},
                {"parallelism_config_dp_shard_size", *setting.group}}));
  result.text = write_yaml(launch_with(setting.launch, changed));
  return result;
}

}  // namespace flatshard_tool
