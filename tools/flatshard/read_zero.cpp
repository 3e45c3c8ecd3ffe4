#include "read_zero.hpp"

#include <fmt/format.h>

#include "error.hpp"
#include "known_keys.hpp"

namespace flatshard_tool {
namespace {

constexpr std::string_view by_unit =
    "collectives go unit by unit: the wrap policy sets their size.";

constexpr KnownKey zero_keys[] = {
    {"contiguous_gradients", Kind::Flag, ignored, "a unit's gradients are always contiguous."},
    {"reduce_scatter", Kind::Flag, ignored, "a rank always receives its own slice only."},
    {"use_multi_rank_bucket_allreduce", Kind::Flag, ignored,
     "a rank always receives its own slice only."},
    {"reduce_bucket_size", Kind::Positive, ignored, by_unit},
    {"allgather_partitions", Kind::Flag, ignored, by_unit},
    {"allgather_bucket_size", Kind::Positive, ignored, by_unit},
    {"overlap_comm", Kind::Flag, ignored, "overlap follows from the prefetch options."},
    {"round_robin_gradients", Kind::Flag, ignored, "the flat order is part of the Plan."},
    {"sub_group_size", Kind::Positive, ignored, "the step runs over a unit's whole slice."},
    {"load_from_fp32_weights", Kind::Flag, ignored, "fp32 masters are always saved and loaded."},
    {"elastic_checkpoint", Kind::Flag, ignored, "every checkpoint loads at any world size."},
    {"ignore_unused_parameters", Kind::Flag, other,
     "an unused parameter has a zero gradient; ModuleOptions::skip_when_unused leaves it alone."},
    {"stage3_module_granularity_threshold", Kind::Count, ignored, by_unit},
    {"stage3_use_all_reduce_for_fetch_params", Kind::Flag, ignored, "gathers are all-gathers."},
    {"stage3_allgather_sequential", Kind::Flag, ignored, by_unit},
    {"memory_efficient_linear", Kind::Flag, ignored,
     "weights are gathered again for backward anyway."},
    {"zero_quantized_weights", Kind::Flag, none, "gathers are in the compute dtype.", true},
    {"zero_quantized_nontrainable_weights", Kind::Flag, none,
     "frozen parameters keep a shard in the compute dtype.", true},
    {"zero_quantized_gradients", Kind::Flag, none, "gradients are reduced unquantised.", true},
    {"zeropp_loco_param", Kind::Any, none, "gradients are reduced unquantised."},
    {"mics_hierarchical_params_gather", Kind::Flag, none, "a group is gathered in one collective.",
     true},
    {"leaf_module", Kind::Any, other, "one Module per call does that."},
    {"log_trace_cache_warnings", Kind::Flag, ignored, ""},
    {"enable_sanity_checks", Kind::Flag, ignored, "ranks always compare their collectives."},
    {"override_module_apply", Kind::Flag, ignored, ""},
    {"pipeline_loading_checkpoint", Kind::Flag, ignored, ""},
    {"save_muon_momentum_buffer_in_memory", Kind::Flag, none, "Muon is not elementwise.", true},
    {"compute_grad_norm", Kind::Flag, ignored, "the norm is measured in the step."},
    {"stage3_model_persistence_threshold", Kind::Count, none,
     "there is one threshold, per parameter."},
    {"zenflow", Kind::Any, none, "there is no asynchronous optimizer step."},
};

constexpr KnownKey offload_keys[] = {
    {"buffer_count", Kind::Positive, ignored, ""},
    {"buffer_size", Kind::Positive, ignored, ""},
    {"max_in_cpu", Kind::Count, ignored, ""},
    {"pin_memory", Kind::Flag, ignored, ""},
    {"pipeline_read", Kind::Flag, ignored, ""},
    {"pipeline_write", Kind::Flag, ignored, ""},
    {"pipeline", Kind::Flag, ignored, ""},
    {"fast_init", Kind::Flag, ignored, ""},
    {"super_offload", Kind::Flag, none, "is for one kind of machine.", true},
    {"cpuadam_cores_perc", Kind::Number, ignored, ""}};

Place place_named(const std::string& name) {
  return name == "cpu" ? Place::Cpu : name == "nvme" ? Place::Nvme : Place::Device;
}

/// One of the two blocks; the device's name.
std::string read_offload(Section& zero, const char* key, std::string& path, Setting& setting) {
  std::optional<Section> block = zero.section(key);
  if (!block) return "none";
  const std::string device = block->choice("device", {"none", "cpu", "nvme"}).value_or("none");
  path = block->text("nvme_path").value_or("");
  if (device == "nvme" && path.empty()) block->fail("nvme_path", "is missing, but device is nvme");
  if (const auto ratio = block->number("ratio"); ratio) {
    if (*ratio > 1) block->fail("ratio", fmt::format("must be at most 1, not {}", *ratio));
    if (*ratio < 1)
      setting.note(none, block->name_of("ratio"), "the optimizer rests in one place as a whole.");
  }
  read_known(*block, offload_keys, setting);
  block->expect_all_read();
  return device;
}

/// The older names: booleans beside the blocks.
void read_deprecated(Section& zero, std::string& parameters, std::string& optimizer) {
  const struct {
    const char *old_name, *new_name;
    std::string& device;
  } pairs[] = {{"cpu_offload", "offload_optimizer", optimizer},
               {"cpu_offload_params", "offload_param", parameters},
               {"cpu_offload_param", "offload_param", parameters}};
  for (const auto& pair : pairs) {
    const bool on = zero.boolean(pair.old_name).value_or(false);
    if (on && zero.has(pair.new_name))
      zero.fail(pair.old_name, fmt::format("and {} both say where to offload", pair.new_name));
    if (on) pair.device = "cpu";
  }
  zero.skip("cpu_offload_use_pin_memory");
}

void read_groups(Section& zero, int stage, Setting& setting) {
  const std::int64_t secondary = zero.whole("zero_hpz_partition_size", 1, 1 << 20).value_or(1);
  const std::int64_t mics = zero.whole("mics_shard_size", -1, 1 << 20).value_or(-1);
  if (mics == 0) zero.fail("mics_shard_size", "must be -1 (off) or at least 1, not 0");
  const bool is_mics = mics > 0, is_secondary = secondary > 1;
  if (is_mics && is_secondary)
    zero.fail("mics_shard_size", "and zero_hpz_partition_size contradict each other");
  if (!is_mics && !is_secondary) return;
  const char* key = is_mics ? "mics_shard_size" : "zero_hpz_partition_size";
  const std::int64_t group = is_mics ? mics : secondary;
  if (stage != 3) zero.fail(key, fmt::format("needs stage 3, not {}", stage));
  if (setting.world && *setting.world % group != 0)
    zero.fail(key, fmt::format("{} does not divide the {} processes", group, *setting.world));
  setting.strategy = is_mics ? Strategy::HybridShard : Strategy::FullShardSecondary;
  setting.group = group;
}

constexpr const char* stage_3_keys[] = {"stage3_param_persistence_threshold",
                                        "stage3_max_live_parameters",
                                        "stage3_prefetch_bucket_size",
                                        "stage3_max_reuse_distance",
                                        "stage3_gather_fp16_weights_on_model_save",
                                        "stage3_gather_16bit_weights_on_model_save"};

void read_stage_3(Section& zero, bool is_stage_3, Setting& setting) {
  const auto persistence = zero.whole("stage3_param_persistence_threshold");
  const auto live = zero.whole("stage3_max_live_parameters");
  const auto bucket = zero.whole("stage3_prefetch_bucket_size");
  const bool has_reuse = zero.whole("stage3_max_reuse_distance").has_value();
  const auto older = zero.boolean("stage3_gather_fp16_weights_on_model_save");
  const auto newer = zero.boolean("stage3_gather_16bit_weights_on_model_save");
  if (older && newer && older != newer)
    zero.fail("stage3_gather_fp16_weights_on_model_save",
              "contradicts stage3_gather_16bit_weights_on_model_save");
  const auto save16 = newer ? newer : older;
  if (!is_stage_3) {
    for (const char* key : stage_3_keys)
      if (zero.has(key)) setting.note(ignored, zero.name_of(key), "is read only at stage 3.");
    return;
  }
  if (!zero.is_auto("stage3_param_persistence_threshold"))
    setting.persistence = persistence.value_or(100000);
  setting.max_live = live.value_or(1000000000);
  setting.whole_checkpoint = setting.saves_16bit = save16.value_or(false);
  if (bucket == 0) setting.prefetch_forward = false;
  if (bucket == 0) setting.prefetch_backward = Backward::None;
  setting.note(
      other, "stage3_prefetch_bucket_size",
      "counts elements there; here prefetch_forward counts units, and backward is one unit "
      "ahead or none.");
  if (has_reuse)
    setting.note(none, "stage3_max_reuse_distance",
                 "a unit is kept from its first to its last use in a call; strategy::ShardGradOp "
                 "keeps all from forward to backward.");
}

}  // namespace

void set_stage(int stage, Setting& setting) {
  constexpr Strategy of_stage[] = {Strategy::NoShard, Strategy::ShardOptimizer,
                                   Strategy::ShardGradOp, Strategy::FullShard};
  setting.strategy = of_stage[stage];
  if (stage == 2)
    setting.note(other, "stage 2",
                 "keeps parameters whole between steps there; strategy::ShardGradOp (as FSDP's "
                 "SHARD_GRAD_OP) shards them outside computation and gathers once a step.");
}

void set_places(Section& section, int stage, const std::string& parameters,
                const std::string& optimizer, Setting& setting) {
  const bool blocks = section.has("offload_param") || section.has("offload_optimizer");
  const char* parameter_key = blocks ? "offload_param" : "offload_param_device";
  const char* optimizer_key = blocks ? "offload_optimizer" : "offload_optimizer_device";
  if (parameters != "none" && stage != 3)
    section.fail(parameter_key, fmt::format("{} needs stage 3, not {}", parameters, stage));
  if (optimizer != "none" && stage == 0)
    section.fail(optimizer_key, optimizer + " needs stage 1, 2 or 3, not 0");
  if (optimizer == "nvme" && stage != 3)
    section.fail(optimizer_key, fmt::format("nvme needs stage 3, not {}", stage));
  setting.parameters = place_named(parameters);
  setting.optimizer = place_named(optimizer);
}

void read_zero(Section& file, Setting& setting) {
  std::optional<Section> section = file.section("zero_optimization");
  const Value empty{Map{}};
  Section zero = section ? *section : Section(empty, setting.source, "zero_optimization");
  const int stage = static_cast<int>(zero.whole("stage", 0, 3).value_or(0));
  if (zero.is_auto("stage")) zero.fail("stage", "is \"auto\", which nobody fills in");
  if (zero.boolean("legacy_stage1").value_or(false))
    zero.fail("legacy_stage1", "is refused by DeepSpeed too");
  set_stage(stage, setting);
  std::string parameters = read_offload(zero, "offload_param", setting.parameters_path, setting);
  std::string optimizer = read_offload(zero, "offload_optimizer", setting.optimizer_path, setting);
  read_deprecated(zero, parameters, optimizer);
  set_places(zero, stage, parameters, optimizer, setting);
  read_groups(zero, stage, setting);
  read_stage_3(zero, stage == 3, setting);
  read_known(zero, zero_keys, setting);
  zero.expect_all_read();
}

}  // namespace flatshard_tool
