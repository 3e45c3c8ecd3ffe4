// The keys of Accelerate's fsdp_config.
#include <fmt/format.h>

#include <array>

#include "error.hpp"
#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {
namespace {

constexpr std::array<std::pair<std::string_view, Strategy>, 5> strategies{{
    {"FULL_SHARD", Strategy::FullShard},
    {"SHARD_GRAD_OP", Strategy::ShardGradOp},
    {"NO_SHARD", Strategy::NoShard},
    {"HYBRID_SHARD", Strategy::HybridShard},
    {"HYBRID_SHARD_ZERO2", Strategy::HybridShardGradOp},
}};

Strategy strategy_named(Section& fsdp, std::string_view key) {
  const Value* value = fsdp.value(key);
  if (value->integer() != nullptr)  // 1 to 5, as torch numbers them
    return strategies[static_cast<std::size_t>(*fsdp.whole(key, 1, 5) - 1)].second;
  const std::string name =
      *fsdp.choice(key, {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                         "HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2", "1", "2", "3", "4", "5"});
  for (std::size_t i = 0; i < strategies.size(); ++i)
    if (name == strategies[i].first || name == std::to_string(i + 1)) return strategies[i].second;
  return Strategy::HybridShardGradOp;
}

/// FSDP 1: under either of two names.
void read_strategy_1(Section& fsdp, Setting& setting) {
  constexpr std::string_view old_name = "fsdp_sharding_strategy";
  constexpr std::string_view new_name = "fsdp_reshard_after_forward";
  const Value* named = fsdp.value(new_name);
  if (named != nullptr && named->boolean() != nullptr)
    fsdp.fail(new_name,
              "is a boolean only with fsdp_version 2; version 1 takes the name of a "
              "sharding strategy");
  if (named != nullptr) setting.strategy = strategy_named(fsdp, new_name);
  if (fsdp.value(old_name) == nullptr) return;
  const Strategy strategy = strategy_named(fsdp, old_name);
  if (named != nullptr && strategy != setting.strategy)
    fsdp.fail(old_name, "contradicts fsdp_reshard_after_forward");
  setting.strategy = strategy;
}

/// FSDP 2: resharding or not, and over how many ranks.
void read_strategy_2(Section& fsdp, const Value& parallelism, Setting& setting) {
  constexpr std::string_view key = "fsdp_reshard_after_forward";
  if (const Value* value = fsdp.value(key); value != nullptr && value->integer() != nullptr)
    fsdp.fail(key, fmt::format("must be true or false, not {0}, as Accelerate demands; torch's own "
                               "reshard_after_forward={0} is strategy::FullShardSecondary with "
                               "Options::shard_group {0} here",
                               *value->integer()));
  const bool reshards = fsdp.boolean(key).value_or(true);
  setting.strategy = reshards ? Strategy::FullShard : Strategy::ShardGradOp;
  if (fsdp.skip("fsdp_sharding_strategy"))
    setting.note(NoteKind::Ignored, "fsdp_sharding_strategy",
                 "version 2 reads fsdp_reshard_after_forward instead.");
  if (parallelism.is_null()) return;
  Section sizes(parallelism, setting.source, "parallelism_config");
  const auto size = [&](const char* name) {
    return sizes.whole(std::string("parallelism_config_") + name, 1).value_or(1);
  };
  const std::int64_t replicas = size("dp_replicate_size");
  const std::int64_t shards = size("dp_shard_size");
  std::int64_t others = 1;
  for (const char* name : {"tp_size", "cp_size", "sp_size", "ep_size", "pp_size"}) {
    const std::int64_t ranks = size(name);
    others *= ranks;
    if (ranks > 1)
      setting.note(NoteKind::NoCounterpart, std::string("parallelism_config_") + name,
                   "is another parallel dimension: build it beside a Sharder per such group "
                   "(Options::norm_hook joins their norms).");
  }
  for (const char* name : {"sp_backend", "cp_comm_strategy", "sp_seq_length",
                           "sp_seq_length_is_variable", "sp_attn_implementation"})
    sizes.skip(std::string("parallelism_config_") + name);
  sizes.expect_all_read();
  if (setting.world && replicas * shards * others != *setting.world)
    throw RequestError(setting.source + ": parallelism_config asks for " +
                       std::to_string(replicas * shards * others) +
                       " ranks, but num_processes is " + std::to_string(*setting.world));
  if (replicas > 1) {
    setting.strategy = reshards ? Strategy::HybridShard : Strategy::HybridShardGradOp;
    setting.group = shards;
  }
}

void read_wrap(Section& fsdp, Setting& setting) {
  const std::string policy =
      fsdp.choice("fsdp_auto_wrap_policy", {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"})
          .value_or("NO_WRAP");
  setting.layers = fsdp.names("fsdp_transformer_layer_cls_to_wrap");
  const std::optional<std::int64_t> least = fsdp.whole("fsdp_min_num_params");
  if (policy != "TRANSFORMER_BASED_WRAP" && !setting.layers.empty())
    setting.note(NoteKind::Ignored, "fsdp_transformer_layer_cls_to_wrap",
                 "is read only with TRANSFORMER_BASED_WRAP.");
  if (policy != "SIZE_BASED_WRAP" && least.value_or(0) > 0)
    setting.note(NoteKind::Ignored, "fsdp_min_num_params", "is read only with SIZE_BASED_WRAP.");
  if (policy == "NO_WRAP") setting.wrap = Wrap::All;
  if (policy != "SIZE_BASED_WRAP") return;
  if (!least || *least == 0)
    fsdp.fail("fsdp_min_num_params",
              "must be a number above 0 with SIZE_BASED_WRAP, or nothing is wrapped");
  setting.wrap = Wrap::Size;
  setting.wrap_size = *least;
}

void read_prefetch(Section& fsdp, Setting& setting) {
  const auto choice = [&](const char* key) {
    return fsdp.choice(key, {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"});
  };
  const auto newer = choice("fsdp_backward_prefetch");
  const auto older = choice("fsdp_backward_prefetch_policy");
  if (newer && older && newer != older)
    fsdp.fail("fsdp_backward_prefetch_policy", "contradicts fsdp_backward_prefetch");
  const auto name = newer ? newer : older;
  const std::optional<bool> forward = fsdp.boolean("fsdp_forward_prefetch");
  if (setting.framework == Framework::Fsdp2) {
    if (forward.value_or(false))
      fsdp.fail("fsdp_forward_prefetch",
                "cannot be true with fsdp_version 2: Accelerate refuses it");
    if (name && *name != "NO_PREFETCH")
      setting.note(NoteKind::Ignored, "fsdp_backward_prefetch",
                   "version 2 always gathers the next unit of backward early.");
    return;
  }
  setting.prefetch_forward = forward.value_or(false);
  const std::string backward = name.value_or("NO_PREFETCH");
  setting.prefetch_backward = backward == "BACKWARD_PRE"    ? Backward::Pre
                              : backward == "BACKWARD_POST" ? Backward::Post
                                                            : Backward::None;
}

void read_loading_and_saving(Section& fsdp, Setting& setting) {
  const std::optional<bool> rank0 = fsdp.boolean("fsdp_cpu_ram_efficient_loading");
  const std::optional<bool> sync = fsdp.boolean("fsdp_sync_module_states");
  const bool version_1 = setting.framework == Framework::Fsdp1;
  setting.rank0_loads = rank0.value_or(false);
  if (version_1 && setting.rank0_loads && sync == false)
    fsdp.fail(
        "fsdp_sync_module_states",
        "cannot be false while fsdp_cpu_ram_efficient_loading is true: only rank 0 would have "
        "the weights");
  if (!version_1 && sync)
    setting.note(NoteKind::Ignored, "fsdp_sync_module_states", "version 2 has no such option.");
  const std::string type =
      fsdp.choice("fsdp_state_dict_type",
                  {"FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"})
          .value_or(version_1 ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT");
  if (!version_1 && type == "LOCAL_STATE_DICT")
    fsdp.fail("fsdp_state_dict_type", "cannot be LOCAL_STATE_DICT with fsdp_version 2");
  setting.whole_checkpoint = type == "FULL_STATE_DICT";
  setting.note(NoteKind::Difference, "fsdp_state_dict_type",
               type +
                   " is one of three formats there; here one folder of whole tensors "
                   "(safetensors), written by every rank in place, loads at any world size.");
}

void read_rest(Section& fsdp, Setting& setting) {
  const std::optional<bool> original = fsdp.boolean("fsdp_use_orig_params");
  if (setting.framework == Framework::Fsdp2 && original)
    setting.note(NoteKind::Ignored, "fsdp_use_orig_params", "version 2 has no such option.");
  else if (original == false)
    setting.note(
        NoteKind::Difference, "fsdp_use_orig_params",
        "false makes one requires_grad and one set of hyper-parameters per unit; here every "
        "parameter has its own (ParameterOptions).");
  if (fsdp.boolean("fsdp_activation_checkpointing").value_or(false))
    setting.note(NoteKind::NoCounterpart, "fsdp_activation_checkpointing",
                 "is the trainer's affair: recompute forward inside the backward function.");
  if (fsdp.skip("fsdp_ignored_modules"))
    setting.note(NoteKind::Difference, "fsdp_ignored_modules",
                 "leave those parameters out of the Model.");
}

}  // namespace

void read_fsdp(const Value& value, const Value& parallelism, Setting& setting) {
  Section fsdp(value, setting.source, "fsdp_config");
  const bool version_1 = fsdp.whole("fsdp_version", 1, 2).value_or(1) == 1;
  setting.framework = version_1 ? Framework::Fsdp1 : Framework::Fsdp2;
  setting.title = version_1 ? "Accelerate, FSDP version 1" : "Accelerate, FSDP version 2";
  if (version_1)
    read_strategy_1(fsdp, setting);
  else
    read_strategy_2(fsdp, parallelism, setting);
  if (version_1 && !parallelism.is_null())
    throw RequestError(setting.source + ": parallelism_config needs fsdp_version 2");
  const bool offload = fsdp.boolean("fsdp_offload_params").value_or(false);
  setting.parameters = setting.optimizer = offload ? Place::Cpu : Place::Device;
  read_wrap(fsdp, setting);
  read_prefetch(fsdp, setting);
  read_loading_and_saving(fsdp, setting);
  read_rest(fsdp, setting);
  fsdp.expect_all_read();
  if (version_1 && is_hybrid(setting.strategy) && setting.world)
    setting.group = *setting.world / setting.machines;
}

bool is_hybrid(Strategy strategy) {
  return strategy == Strategy::HybridShard || strategy == Strategy::HybridShardGradOp;
}

}  // namespace flatshard_tool
