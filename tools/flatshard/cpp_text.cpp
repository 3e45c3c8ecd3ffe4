#include "cpp_text.hpp"

#include <fmt/format.h>

#include <cmath>

namespace flatshard_tool {
namespace {

namespace precision = flatshard::precision;
using flatshard::Bf16;
using flatshard::Half;
using flatshard::LossScaling;

template <class Policy>
PrecisionChoice choice_of(const char* code) {
  return {std::string("flatshard::precision::") + code, flatshard::precision_traits<Policy>()};
}

PrecisionChoice full(Type type) {
  if (type == Type::BFloat16) return choice_of<precision::Full<Bf16>>("Full<flatshard::Bf16>");
  if (type == Type::Float16) return choice_of<precision::Full<Half>>("Full<flatshard::Half>");
  return choice_of<precision::Full<float>>("Full<float>");
}

PrecisionChoice deepspeed_bf16(const Setting& setting) {
  if (setting.bf16_states) return full(Type::BFloat16);
  if (setting.bf16_master)
    return choice_of<precision::Full<Bf16, float>>("Full<flatshard::Bf16, float>");
  if (setting.reduce == Type::Float32) return choice_of<precision::Bf16Mixed>("Bf16Mixed");
  return choice_of<precision::DeepSpeedBf16>("DeepSpeedBf16");
}

PrecisionChoice deepspeed_fp16(const Setting& setting) {
  const bool wide = setting.reduce == Type::Float32;
  if (setting.scaling.constant) {
    constexpr LossScaling rule = LossScaling::Static;
    return wide ? choice_of<precision::Fp16MixedScaling<rule, float>>(
                      "Fp16MixedScaling<flatshard::LossScaling::Static, float>")
                : choice_of<precision::Fp16MixedScaling<rule>>(
                      "Fp16MixedScaling<flatshard::LossScaling::Static>");
  }
  constexpr LossScaling rule = LossScaling::DeepSpeed;
  return wide ? choice_of<precision::Fp16MixedScaling<rule, float>>(
                    "Fp16MixedScaling<flatshard::LossScaling::DeepSpeed, float>")
              : choice_of<precision::Fp16MixedScaling<rule>>(
                    "Fp16MixedScaling<flatshard::LossScaling::DeepSpeed>");
}

std::string offload_code(const Setting& setting) {
  const auto name = [](Place place) {
    return place == Place::Cpu    ? "flatshard::offload::Cpu"
           : place == Place::Nvme ? "flatshard::offload::Nvme"
                                  : "flatshard::offload::Device";
  };
  if (setting.parameters == Place::Device && setting.optimizer == Place::Device)
    return "flatshard::offload::None";
  if (setting.framework != Framework::DeepSpeed)
    return fmt::format("flatshard::offload::All<{}>", name(setting.parameters));
  return fmt::format("flatshard::offload::Place<{}, {}>", name(setting.parameters),
                     name(setting.optimizer));
}

std::string wrap_code(const Setting& setting) {
  if (setting.wrap == Wrap::All) return "flatshard::wrap::all_in_one()";
  if (setting.wrap == Wrap::Size)
    return fmt::format("flatshard::wrap::up_to({})", setting.wrap_size);
  return "flatshard::wrap::each_module()";
}

std::string scaling_code(const Scaling& scaling) {
  if (scaling.constant)
    return fmt::format("flatshard::LossScaler::constant({}).settings", *scaling.constant);
  return fmt::format("flatshard::LossScaler::deepspeed({}, {}, {}, {}, {}).settings",
                     std::ldexp(1.0, static_cast<int>(scaling.initial_power)), scaling.window,
                     scaling.hysteresis, scaling.minimum, scaling.consecutive);
}

/// The options that are not the library's defaults, in the order of flatshard::Options.
std::vector<std::string> option_lines(const Setting& setting) {
  std::vector<std::string> lines;
  const auto add = [&](const char* name, const auto& value) {
    lines.push_back(fmt::format(".{} = {},", name, value));
  };
  if (setting.clip.value_or(0) > 0) add("max_grad_norm", *setting.clip);
  if (setting.micro_steps > 1) add("max_micro_steps", setting.micro_steps);
  if (setting.group) add("shard_group", *setting.group);
  if (setting.wrap != Wrap::Modules) add("wrap", wrap_code(setting));
  if (!setting.prefetch_forward) add("prefetch_forward", 0);
  if (setting.prefetch_backward != Backward::Pre)
    add("prefetch_backward", setting.prefetch_backward == Backward::Post
                                 ? "flatshard::BackwardPrefetch::Post"
                                 : "flatshard::BackwardPrefetch::None");
  if (setting.max_live) add("max_live_elements", *setting.max_live);
  if (setting.persistence.value_or(0) > 0) add("persistence_threshold", *setting.persistence);
  if (setting.mixed == Mixed::Fp16 && setting.framework == Framework::DeepSpeed)
    add("loss_scale", scaling_code(setting.scaling));
  return lines;
}

}  // namespace

PrecisionChoice choose_precision(const Setting& setting) {
  const bool deepspeed = setting.framework == Framework::DeepSpeed;
  if (setting.mixed == Mixed::No) return full(deepspeed ? Type::Float32 : setting.loaded_as);
  if (setting.mixed == Mixed::Bf16)
    return deepspeed ? deepspeed_bf16(setting) : choice_of<precision::Bf16Mixed>("Bf16Mixed");
  return deepspeed ? deepspeed_fp16(setting) : choice_of<precision::Fp16Mixed>("Fp16Mixed");
}

std::string name_of(Strategy strategy) {
  constexpr const char* names[] = {"NoShard",           "ShardOptimizer", "ShardGradOp",
                                   "FullShard",         "HybridShard",    "HybridShardGradOp",
                                   "FullShardSecondary"};
  return names[static_cast<int>(strategy)];
}

std::string name_of(Type type) {
  constexpr const char* names[] = {"float32", "bfloat16", "float16"};
  return names[static_cast<int>(type)];
}

std::string cpp_text(const Setting& setting) {
  std::string text = fmt::format(
      "using Trainer = flatshard::Sharder<flatshard::strategy::{},\n"
      "                                   {},\n"
      "                                   {}>;\n",
      name_of(setting.strategy), choose_precision(setting).code, offload_code(setting));
  const std::vector<std::string> lines = option_lines(setting);
  text += lines.empty() ? "const flatshard::Options options{};\n"
                        : "const flatshard::Options options{\n";
  for (const std::string& line : lines) text += "    " + line + "\n";
  if (!lines.empty()) text += "};\n";
  text += fmt::format("Trainer trainer{{communicator, model, {}, options}};\n",
                      setting.optimizer_code.value_or("flatshard::AdamW{}"));
  return text;
}

}  // namespace flatshard_tool
