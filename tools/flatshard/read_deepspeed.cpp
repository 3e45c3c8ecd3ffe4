// ds_config.json: what is common to the whole training, precision and optimizer.
#include <fmt/format.h>

#include "cpp_text.hpp"
#include "error.hpp"
#include "known_keys.hpp"
#include "read_optimizer.hpp"
#include "read_zero.hpp"
#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {
namespace {

constexpr KnownKey top_keys[] = {
    {"steps_per_print", Kind::Any, ignored, ""},
    {"wall_clock_breakdown", Kind::Any, ignored, ""},
    {"memory_breakdown", Kind::Any, ignored, ""},
    {"dump_state", Kind::Any, ignored, ""},
    {"logging", Kind::Any, ignored, ""},
    {"flops_profiler", Kind::Any, ignored, ""},
    {"tensorboard", Kind::Any, ignored, ""},
    {"wandb", Kind::Any, ignored, ""},
    {"comet", Kind::Any, ignored, ""},
    {"csv_monitor", Kind::Any, ignored, ""},
    {"comms_logger", Kind::Any, ignored, ""},
    {"comms_config", Kind::Any, ignored, ""},
    {"timers", Kind::Any, ignored, ""},
    {"aio", Kind::Any, other, "file access has options of its own."},
    {"scheduler", Kind::Any, other,
     "the schedule is the trainer's: call set_optimizer before a step."},
    {"prescale_gradients", Kind::Flag, ignored,
     "sums are formed in fp32 and divided once, in the step."},
    {"gradient_predivide_factor", Kind::Number, ignored,
     "sums are formed in fp32 and divided once, in the step."},
    {"gradient_allreduce_op", Kind::Text, other,
     "the divisor is StepOptions::gradient_divisor: 1 gives the sum."},
    {"seq_parallel_communication_data_type", Kind::Text, none,
     "sequence parallelism is built beside a Sharder."},
    {"sparse_gradients", Kind::Flag, none, "gradients are dense here.", true},
    {"zero_allow_untested_optimizer", Kind::Flag, ignored, "any elementwise optimizer is served."},
    {"zero_force_ds_cpu_optimizer", Kind::Flag, ignored, "any elementwise optimizer is served."},
    {"disable_allgather", Kind::Flag, ignored, ""},
    {"dataloader_drop_last", Kind::Flag, ignored, "data loading is the trainer's."},
    {"data_efficiency", Kind::Any, none, "data loading is the trainer's."},
    {"curriculum_learning", Kind::Any, none, "data loading is the trainer's."},
    {"activation_checkpointing", Kind::Any, other,
     "is the trainer's affair: recompute forward inside the backward function."},
    {"autotuning", Kind::Any, none, "flatshard plan shows what a choice costs before it is run."},
    {"elasticity", Kind::Any, other,
     "a checkpoint loads at any world size; choosing the batch is the trainer's."},
    {"checkpoint", Kind::Any, other, "there is one checkpoint format, committed atomically."},
    {"load_universal_checkpoint", Kind::Flag, ignored, "every checkpoint is universal."},
    {"hybrid_engine", Kind::Any, none, "generation is the user's."},
    {"pipeline", Kind::Any, none, "pipeline stages are built beside a Sharder."},
    {"tensor_parallel", Kind::Any, none, "tensor slices are built beside a Sharder."},
    {"sequence_parallel_size", Kind::Positive, none, "is built beside a Sharder."},
    {"zenflow", Kind::Any, none, "there is no asynchronous optimizer step."},
    {"compile", Kind::Any, ignored, "kernels are the user's."},
    {"compression_training", Kind::Any, none, "weights are not compressed."},
    {"weight_quantization", Kind::Any, none, "weights are not compressed."},
    {"sparse_attention", Kind::Any, ignored, "kernels are the user's."},
    {"eigenvalue", Kind::Any, none, "is the trainer's."},
    {"progressive_layer_drop", Kind::Any, none, "is the trainer's."},
    {"use_data_before_expert_parallelism", Kind::Any, none, "experts are built beside a Sharder."},
    {"nebula", Kind::Any, none, "there is one checkpoint format, committed atomically."},
    {"graph_harvesting", Kind::Any, ignored, ""},
    {"torch_autocast", Kind::Any, none,
     "each parameter may have a compute dtype of its own (ParameterOptions::dtype)."},
};

/// A section {"enabled": ...}: true, false, or what mixed_precision says.
bool is_enabled(std::optional<Section>& section, Mixed kind, const std::optional<Mixed>& mixed) {
  if (!section) return false;
  if (!section->is_auto("enabled")) return section->boolean("enabled").value_or(false);
  section->skip("enabled");
  if (!mixed)
    section->fail("enabled", "is \"auto\": say what the trainer fills in with --mixed-precision");
  return *mixed == kind;
}

void read_scaling(Section& fp16, Setting& setting) {
  Scaling& scaling = setting.scaling;
  const double constant = fp16.number("loss_scale").value_or(0);
  if (constant > 0) scaling.constant = constant;
  scaling.initial_power = fp16.whole("initial_scale_power", 0, 126).value_or(16);
  scaling.window = fp16.whole("loss_scale_window", 1).value_or(1000);
  scaling.hysteresis = fp16.whole("hysteresis", 1).value_or(2);
  scaling.consecutive = fp16.boolean("consecutive_hysteresis").value_or(false);
  scaling.minimum = fp16.number("min_loss_scale").value_or(1);
  if (scaling.minimum == 0)
    fp16.fail("min_loss_scale", "must be above 0, as newer releases demand; 1 is the default");
}

void read_fp16(Section& fp16, Setting& setting) {
  read_scaling(fp16, setting);
  constexpr KnownKey keys[] = {
      {"auto_cast", Kind::Flag, none, "inputs are cast by the user's functions.", true},
      {"fp16_master_weights_and_grads", Kind::Flag, none,
       "masters stay fp32; precision::Full<Half, float, float> has fp16 masters, without a loss "
       "scale.",
       true},
      {"fp16_opt_level", Kind::Any, ignored, ""}};
  read_known(fp16, keys, setting);
  fp16.expect_all_read();
}

void read_bf16(Section& bf16, Setting& setting) {
  setting.bf16_master = bf16.boolean("bf16_master_weights_and_grads").value_or(false);
  setting.bf16_states = bf16.boolean("bf16_optimizer_states").value_or(false);
  if (setting.bf16_states && !setting.bf16_master)
    bf16.fail("bf16_optimizer_states", "needs bf16_master_weights_and_grads");
  constexpr KnownKey keys[] = {
      {"immediate_grad_update", Kind::Flag, ignored,
       "a unit's gradient is reduced and added as soon as its backward is over."},
      {"check_grad_overflow", Kind::Flag, other,
       "is Options::on_nonfinite: Error by default, Skip as here, or Apply."}};
  read_known(bf16, keys, setting);
  bf16.expect_all_read();
}

void read_precision(Section& file, Setting& setting, const std::optional<Mixed>& mixed) {
  std::optional<Section> fp16 = file.section("fp16");
  std::optional<Section> bf16 = file.section("bf16");
  std::optional<Section> older = file.section("bfloat16");
  if (bf16 && older) file.fail("bfloat16", "is the older name of bf16, and both are given");
  if (older) bf16 = std::move(older);
  const bool is_fp16 = is_enabled(fp16, Mixed::Fp16, mixed);
  const bool is_bf16 = is_enabled(bf16, Mixed::Bf16, mixed);
  if (is_fp16 && is_bf16) file.fail("fp16", "and bf16 are both enabled, which contradicts itself");
  if (fp16) read_fp16(*fp16, setting);
  if (bf16) read_bf16(*bf16, setting);
  if (!is_bf16) setting.bf16_master = setting.bf16_states = false;
  if (const std::optional<Section> amp = file.section("amp"); amp && amp->has("enabled"))
    setting.note(none, "amp", "only fp16 and bf16 are translated.");
  setting.mixed = is_fp16 ? Mixed::Fp16 : is_bf16 ? Mixed::Bf16 : Mixed::No;
}

std::optional<Type> type_named(const std::optional<std::string>& name) {
  if (!name) return {};
  if (*name == "fp32" || *name == "float32") return Type::Float32;
  return *name == "bf16" || *name == "bfloat16" ? Type::BFloat16 : Type::Float16;
}

/// `there`: the dtype in which DeepSpeed adds the gradients of micro-steps.
void note_accumulation(Type there, Setting& setting) {
  const bool wide_here = choose_precision(setting).roles.accumulate == flatshard::DType::Float32;
  if (wide_here == (there == Type::Float32)) return;
  setting.note(other, "data_types.grad_accum_dtype",
               wide_here ? "gradients of micro-steps are added in 16 bits there, in fp32 here."
                         : "gradients of micro-steps are added in fp32 there, in 16 bits here; the "
                           "third argument of precision::Full changes that.");
}

void read_types(Section& file, Setting& setting) {
  const auto names = {std::string_view("fp32"), std::string_view("float32"),
                      std::string_view("fp16"), std::string_view("float16"),
                      std::string_view("bf16"), std::string_view("bfloat16")};
  setting.reduce = type_named(file.choice("communication_data_type", names));
  const Type computed = setting.mixed == Mixed::Bf16   ? Type::BFloat16
                        : setting.mixed == Mixed::Fp16 ? Type::Float16
                                                       : Type::Float32;
  if (setting.reduce && *setting.reduce != Type::Float32 && *setting.reduce != computed) {
    setting.note(none, "communication_data_type",
                 "gradients are reduced to the compute dtype or to fp32; fp32 is taken.");
    setting.reduce = Type::Float32;
  }
  std::optional<Section> types = file.section("data_types");
  std::optional<Type> accumulate;
  if (types) {
    accumulate = type_named(types->choice("grad_accum_dtype", names));
    if (types->choice("param_dtype", names))
      setting.note(other, "data_types.param_dtype",
                   "is ParameterOptions::dtype here, for each parameter.");
    if (types->choice("buffer_dtype", names))
      setting.note(other, "data_types.buffer_dtype",
                   "is the dtype given to Module::add_buffer here.");
    types->expect_all_read();
  }
  if (setting.mixed != Mixed::No) note_accumulation(accumulate.value_or(computed), setting);
}

void read_batch(Section& file, Setting& setting) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const auto all = file.whole("train_batch_size", 1, most);
  const auto micro = file.whole("train_micro_batch_size_per_gpu", 1, most);
  const auto steps = file.whole("gradient_accumulation_steps", 1, 1 << 20);
  if (steps) setting.micro_steps = *steps;
  if (!all || !micro) return;
  const std::int64_t part = *micro * setting.micro_steps;
  if (*all % part != 0)
    file.fail("train_batch_size",
              fmt::format("{} is no multiple of train_micro_batch_size_per_gpu {} times "
                          "gradient_accumulation_steps {}",
                          *all, *micro, setting.micro_steps));
  if (!steps) return;
  if (setting.world && *all != part * *setting.world)
    file.fail("train_batch_size",
              fmt::format("{} is not {} times num_processes {}", *all, part, *setting.world));
  if (!setting.world) setting.world = *all / part;
}

void read_clipping(Section& file, Setting& setting) {
  setting.clip = file.number("gradient_clipping");
  if (setting.clip || file.is_auto("gradient_clipping")) return;
  setting.note(other, "gradient_clipping",
               "is absent: DeepSpeed then clips at 1.0 since mid-2026 and not at all before; here "
               "max_grad_norm is 0 (off) until you set it.");
}

void note_autos(const Value& value, const std::string& path, Setting& setting) {
  if (value.map() == nullptr || path == "scheduler") return;
  for (const auto& [key, entry] : *value.map()) {
    const std::string name = path.empty() ? key : path + "." + key;
    if (entry == Value("auto") && key != "enabled")
      setting.note(other, name, "is \"auto\": the trainer fills it in; set it yourself here.");
    note_autos(entry, name, setting);
  }
}

}  // namespace

void read_deepspeed(const Value& value, const std::string& source, Setting& setting,
                    const TranslateOptions& options) {
  Section file(value, source, "");
  read_batch(file, setting);
  read_precision(file, setting, options.mixed);
  read_types(file, setting);
  read_clipping(file, setting);
  read_optimizer(file, setting);
  read_zero(file, setting);
  read_known(file, top_keys, setting);
  file.expect_all_read();
  note_autos(value, "", setting);
}

}  // namespace flatshard_tool
