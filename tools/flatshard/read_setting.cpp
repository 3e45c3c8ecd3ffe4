// Which kind of file it is, and Accelerate's own keys.
#include <filesystem>

#include "error.hpp"
#include "files.hpp"
#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {
namespace {

Value parse(const std::string& path) {
  const std::string text = read_text(path);
  const std::string extension = std::filesystem::path(path).extension();
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool looks_like_json = first != std::string::npos && text[first] == '{';
  const bool is_yaml = extension == ".yaml" || extension == ".yml";
  return extension == ".json" || (!is_yaml && looks_like_json) ? parse_json(text, path)
                                                               : parse_yaml(text, path);
}

/// Keys that say where and how processes start: handed on to the other framework as they are.
constexpr const char* launch_keys[] = {"compute_environment",
                                       "debug",
                                       "distributed_type",
                                       "downcast_bf16",
                                       "enable_cpu_affinity",
                                       "gpu_ids",
                                       "machine_rank",
                                       "main_process_ip",
                                       "main_process_port",
                                       "main_training_function",
                                       "num_machines",
                                       "num_processes",
                                       "rdzv_backend",
                                       "rdzv_conf",
                                       "same_network",
                                       "tpu_env",
                                       "tpu_name",
                                       "tpu_zone",
                                       "tpu_use_cluster",
                                       "tpu_use_sudo",
                                       "use_cpu",
                                       "commands",
                                       "command_file",
                                       "dynamo_backend",
                                       "dynamo_config",
                                       "mpirun_config",
                                       "ipex_config",
                                       "max_restarts",
                                       "monitor_interval",
                                       "mixed_precision"};

void copy_launch(Section& file, Setting& setting) {
  for (const char* key : launch_keys)
    if (const Value* value = file.value(key)) setting.launch.emplace_back(key, *value);
}

/// mixed_precision: no, which YAML reads as false.
std::optional<Mixed> read_mixed(Section& file) {
  const Value* value = file.value("mixed_precision");
  if (value != nullptr && value->boolean() != nullptr && !*value->boolean()) return Mixed::No;
  const auto name = file.choice("mixed_precision", {"no", "bf16", "fp16", "fp8"});
  if (!name) return {};
  if (*name == "fp8") file.fail("mixed_precision", "fp8 is a precision that flatshard has not");
  return *name == "bf16" ? Mixed::Bf16 : *name == "fp16" ? Mixed::Fp16 : Mixed::No;
}

void read_ranks(Section& file, Setting& setting) {
  setting.world = file.whole("num_processes", 1, 1 << 20);
  setting.machines = file.whole("num_machines", 1, 1 << 20).value_or(1);
  if (setting.world && *setting.world % setting.machines != 0)
    file.fail("num_processes", std::to_string(*setting.world) +
                                   " does not divide by num_machines " +
                                   std::to_string(setting.machines));
}

bool is_filled(Section& file, const char* key) {
  const Value* value = file.value(key);
  return value != nullptr && !(value->map() != nullptr && value->map()->empty());
}

void refuse_others(Section& file) {
  for (const char* key : {"megatron_lm_config", "tp_config", "fp8_config"})
    if (is_filled(file, key))
      file.fail(key, "is another framework's: there is nothing to translate");
}

Setting read_accelerate(const Value& value, const std::string& path,
                        const TranslateOptions& options) {
  Setting setting;
  setting.source = path;
  Section file(value, path, "");
  const auto kind = file.choice(
      "distributed_type",
      {"FSDP", "DEEPSPEED", "NO", "MULTI_GPU", "MULTI_CPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU",
       "MULTI_MUSA", "MULTI_HPU", "MULTI_SDAA", "MULTI_NEURON", "XLA", "TPU", "TP", "MEGATRON_LM"});
  if (kind != "FSDP" && kind != "DEEPSPEED")
    file.fail("distributed_type",
              "must be FSDP or DEEPSPEED for a translation, not " + kind.value_or("absent"));
  const bool is_fsdp = kind == "FSDP";
  if (is_filled(file, is_fsdp ? "deepspeed_config" : "fsdp_config"))
    file.fail(is_fsdp ? "deepspeed_config" : "fsdp_config",
              "contradicts distributed_type " + *kind);
  refuse_others(file);
  read_ranks(file, setting);
  const std::optional<Mixed> mixed = read_mixed(file);
  copy_launch(file, setting);
  setting.mixed = mixed.value_or(Mixed::No);
  setting.loaded_as = options.loaded_as;
  const Value* own = file.value(is_fsdp ? "fsdp_config" : "deepspeed_config");
  const Value* parallelism = file.value("parallelism_config");
  if (parallelism != nullptr && !is_fsdp && is_filled(file, "parallelism_config"))
    file.fail("parallelism_config", "contradicts distributed_type DEEPSPEED");
  file.expect_all_read();
  const Value nothing;
  if (is_fsdp)
    read_fsdp(own != nullptr ? *own : nothing, parallelism != nullptr ? *parallelism : nothing,
              setting);
  else
    read_accelerate_deepspeed(own != nullptr ? *own : nothing, setting, options, mixed.has_value());
  return setting;
}

}  // namespace

Setting read_setting(const std::string& path, const TranslateOptions& options) {
  const Value value = parse(path);
  if (value.map() == nullptr)
    throw RequestError(path + ": the file must be a map of keys and values");
  const Map& map = *value.map();
  for (const char* key :
       {"distributed_type", "compute_environment", "fsdp_config", "deepspeed_config"})
    if (find(map, key) != nullptr) return read_accelerate(value, path, options);
  Setting setting;
  setting.source = path;
  setting.title = "DeepSpeed configuration";
  setting.framework = Framework::DeepSpeed;
  read_deepspeed(value, path, setting, options);
  return setting;
}

}  // namespace flatshard_tool
