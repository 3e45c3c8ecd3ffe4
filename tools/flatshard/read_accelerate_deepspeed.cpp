// The keys of Accelerate's deepspeed_config.
#include <filesystem>

#include "error.hpp"
#include "files.hpp"
#include "read_zero.hpp"
#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {
namespace {

void read_launcher(Section& config, Setting& setting) {
  config.choice("deepspeed_multinode_launcher",
                {"standard", "pdsh", "openmpi", "mvapich", "mpich", "slurm", "nossh"});
  for (const char* key :
       {"deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter"})
    config.text(key);
  if (!config.names("deepspeed_moe_layer_cls_names").empty())
    setting.note(NoteKind::Difference, "deepspeed_moe_layer_cls_names",
                 "one Module per call does that.");
}

std::string find_file(const std::string& named, const std::string& beside) {
  const std::filesystem::path path(named);
  if (path.is_absolute() || std::filesystem::exists(path)) return named;
  return std::filesystem::path(beside).parent_path() / path;
}

/// A file beside the YAML says it all; what both say, Accelerate refuses.
void read_file(Section& config, const std::string& file, Setting& setting,
               const TranslateOptions& options, bool mixed_precision_given) {
  for (const char* key :
       {"gradient_accumulation_steps", "gradient_clipping", "zero_stage",
        "offload_optimizer_device", "offload_param_device", "offload_param_nvme_path",
        "offload_optimizer_nvme_path", "zero3_save_16bit_model"})
    if (config.has(key))
      config.fail(key, "contradicts deepspeed_config_file, which says it already");
  const std::string path = find_file(file, setting.source);
  const Mixed said = setting.mixed;
  TranslateOptions filled = options;
  if (mixed_precision_given && !filled.mixed) filled.mixed = said;
  const Value value = parse_json(read_text(path), path);
  read_deepspeed(value, path, setting, filled);
  if (mixed_precision_given && setting.mixed != said)
    throw RequestError(setting.source + ": mixed_precision contradicts what fp16 and bf16 say in " +
                       path);
}

void read_here(Section& config, Setting& setting) {
  const int stage = static_cast<int>(config.whole("zero_stage", 0, 3).value_or(2));
  set_stage(stage, setting);
  const auto device = [&](const char* key) {
    return config.choice(key, {"none", "cpu", "nvme"}).value_or("none");
  };
  const std::string parameters = device("offload_param_device");
  const std::string optimizer = device("offload_optimizer_device");
  setting.parameters_path = config.text("offload_param_nvme_path").value_or("");
  setting.optimizer_path = config.text("offload_optimizer_nvme_path").value_or("");
  set_places(config, stage, parameters, optimizer, setting);
  if (parameters == "nvme" && setting.parameters_path.empty())
    config.fail("offload_param_nvme_path", "is missing, but offload_param_device is nvme");
  if (optimizer == "nvme" && setting.optimizer_path.empty())
    config.fail("offload_optimizer_nvme_path", "is missing, but offload_optimizer_device is nvme");
  setting.micro_steps = config.whole("gradient_accumulation_steps", 1, 1 << 20).value_or(1);
  setting.clip = config.number("gradient_clipping");
  const bool save16 = config.boolean("zero3_save_16bit_model").value_or(false);
  if (save16 && stage != 3)
    setting.note(NoteKind::Ignored, "zero3_save_16bit_model", "is read only at stage 3.");
  for (const char* key : {"gradient_accumulation_steps", "gradient_clipping"})
    if (config.is_auto(key))
      setting.note(NoteKind::Difference, key,
                   "is \"auto\": the trainer fills it in; set it yourself here.");
  if (stage != 3) return;
  setting.whole_checkpoint = setting.saves_16bit = save16;
  setting.persistence = 100000;
  setting.max_live = 1000000000;
}

}  // namespace

void read_accelerate_deepspeed(const Value& value, Setting& setting,
                               const TranslateOptions& options, bool mixed_precision_given) {
  setting.framework = Framework::DeepSpeed;
  setting.title = "Accelerate, DeepSpeed";
  Section config(value, setting.source, "deepspeed_config");
  read_launcher(config, setting);
  const bool init = config.boolean("zero3_init_flag").value_or(false);
  if (const auto file = config.text("deepspeed_config_file"); file && *file != "none")
    read_file(config, *file, setting, options, mixed_precision_given);
  else
    read_here(config, setting);
  if (init && setting.strategy != Strategy::FullShard && !setting.group)
    setting.note(NoteKind::Ignored, "zero3_init_flag", "is read only at stage 3.");
  setting.rank0_loads = init;
  config.expect_all_read();
}

}  // namespace flatshard_tool
