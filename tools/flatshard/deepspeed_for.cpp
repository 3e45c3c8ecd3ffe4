// A DeepSpeed configuration that does what an FSDP one asks for.
#include <algorithm>

#include "cpp_text.hpp"
#include "equivalent.hpp"

namespace flatshard_tool {
namespace {

int stage_of(Strategy strategy) {
  if (strategy == Strategy::NoShard) return 0;
  return strategy == Strategy::ShardGradOp ? 2 : 3;
}

/// Where parts rest, within what the stage can do.
struct Devices {
  const char* parameters = "none";
  const char* optimizer = "none";
};

Devices devices_of(const Setting& setting, int stage, Equivalent& result) {
  if (setting.parameters == Place::Device) return {};
  if (stage == 3) return {"cpu", "cpu"};
  if (stage == 2) {
    result.notes.push_back({none, "fsdp_offload_params",
                            "stage 2 offloads the optimizer and gradients; parameters stay on the "
                            "device (offload_param needs stage 3)."});
    return {"none", "cpu"};
  }
  result.notes.push_back({none, "fsdp_offload_params", "stage 0 cannot offload; nothing is."});
  return {};
}

void note_strategy(const Setting& setting, Equivalent& result) {
  auto& notes = result.notes;
  if (setting.strategy == Strategy::ShardGradOp)
    notes.push_back({other, "SHARD_GRAD_OP",
                     "stage 2 keeps parameters whole between steps; FSDP shards them outside "
                     "computation."});
  if (setting.strategy == Strategy::HybridShard)
    notes.push_back(
        {other, "HYBRID_SHARD",
         "is MiCS; Accelerate's guide names ZeRO++ (hpZ), which shards the optimizer over "
         "all ranks and only keeps a second shard in the node."});
  if (setting.strategy == Strategy::HybridShardGradOp)
    notes.push_back({none, "HYBRID_SHARD_ZERO2",
                     "MiCS exists at stage 3 only: parameters are gathered again for backward."});
}

void note_rest(const Setting& setting, int stage, Equivalent& result) {
  auto& notes = result.notes;
  if (setting.mixed == Mixed::No && setting.loaded_as != Type::Float32)
    notes.push_back({none, "dtype",
                     "DeepSpeed ignores the load dtype " + name_of(setting.loaded_as) +
                         ": masters and optimizer are fp32."});
  if (setting.wrap != Wrap::Modules || !setting.layers.empty())
    notes.push_back({other, "fsdp_auto_wrap_policy", "wrapping is transparent in DeepSpeed."});
  if (stage == 3)
    notes.push_back({other, "prefetch",
                     "DeepSpeed prefetches by itself, from stage3_prefetch_bucket_size and "
                     "stage3_max_live_parameters, and keeps parameters of at most 100000 elements "
                     "whole."});
  if (setting.whole_checkpoint && stage == 3)
    notes.push_back({other, "fsdp_state_dict_type",
                     "zero3_save_16bit_model saves 16 bits, FULL_STATE_DICT the flat parameters' "
                     "dtype; zero_to_fp32.py recovers fp32."});
  notes.push_back({other, "gradient_accumulation_steps, gradient_clipping",
                   "must be in the file or \"auto\"; with FSDP they are arguments of the script."});
}

Value accelerate_file(const Setting& setting, int stage, const Devices& devices) {
  Map config = map_of({{"gradient_accumulation_steps", "auto"},
                       {"gradient_clipping", "auto"},
                       {"offload_optimizer_device", devices.optimizer},
                       {"offload_param_device", devices.parameters},
                       {"zero3_init_flag", setting.rank0_loads && stage == 3}});
  if (stage == 3) config.emplace_back("zero3_save_16bit_model", setting.whole_checkpoint);
  config.emplace_back("zero_stage", stage);
  return launch_with(setting.launch, map_of({{"distributed_type", "DEEPSPEED"},
                                             {"deepspeed_config", std::move(config)},
                                             {"mixed_precision", mixed_name(setting.mixed)}}));
}

/// Groups are no key of Accelerate's: DeepSpeed's own file.
Value own_file(const Setting& setting, const Devices& devices) {
  Map zero = map_of({{"stage", 3}, {"mics_shard_size", *setting.group}});
  const Value cpu{map_of({{"device", "cpu"}})};
  if (devices.parameters == std::string("cpu")) zero.emplace_back("offload_param", cpu);
  if (devices.optimizer == std::string("cpu")) zero.emplace_back("offload_optimizer", cpu);
  zero.emplace_back("stage3_gather_16bit_weights_on_model_save", setting.whole_checkpoint);
  Map file = map_of({{"train_micro_batch_size_per_gpu", "auto"},
                     {"gradient_accumulation_steps", "auto"},
                     {"gradient_clipping", "auto"},
                     {"bf16", map_of({{"enabled", setting.mixed == Mixed::Bf16}})},
                     {"fp16", map_of({{"enabled", setting.mixed == Mixed::Fp16}})},
                     {"zero_optimization", std::move(zero)}});
  return file;
}

}  // namespace

Equivalent deepspeed_for(const Setting& setting) {
  Equivalent result;
  const int stage = stage_of(setting.strategy);
  const Devices devices = devices_of(setting, stage, result);
  note_strategy(setting, result);
  note_rest(setting, stage, result);
  if (!is_hybrid(setting.strategy)) {
    result.title = "DeepSpeed, an Accelerate configuration";
    result.text = write_yaml(accelerate_file(setting, stage, devices));
    return result;
  }
  result.title =
      "DeepSpeed, ds_config.json (for deepspeed_config_file; MiCS is no key of Accelerate's)";
  if (setting.group)
    result.text = write_json(own_file(setting, devices));
  else
    result.notes.push_back({none, "mics_shard_size",
                            "needs the ranks of a group: give num_processes (and num_machines) in "
                            "the file. No file is written."});
  return result;
}

}  // namespace flatshard_tool
