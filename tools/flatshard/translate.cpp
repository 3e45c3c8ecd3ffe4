#include "translate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "cpp_text.hpp"

namespace flatshard_tool {
namespace {

using Text = std::back_insert_iterator<std::string>;

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "block" : all;
}

/// How flatshard differs from what was read, where no single key is the cause.
std::vector<Note> general_notes(const Setting& setting, const PrecisionChoice& precision) {
  std::vector<Note> notes;
  const bool deepspeed = setting.framework == Framework::DeepSpeed;
  if (!deepspeed && setting.mixed == Mixed::Bf16)
    notes.push_back(
        {other, "reduce dtype",
         "Accelerate's MixedPrecision reduces gradients in bfloat16 too; Bf16Mixed keeps "
         "the sum in float32. precision::DeepSpeedBf16 rounds it to bfloat16."});
  if (!deepspeed && setting.mixed == Mixed::No && setting.loaded_as != Type::Float32)
    notes.push_back(
        {other, "master dtype",
         "flat parameters, optimizer state and checkpoint stay in " + name_of(setting.loaded_as) +
             ", where small updates are lost and training may stop improving; DeepSpeed, "
             "and FSDP with mixed precision, keep float32 masters."});
  if (!deepspeed && setting.mixed != Mixed::No)
    notes.push_back({other, "master dtype",
                     "float32, whatever the model was loaded as: both upcast at preparation."});
  if (deepspeed && precision.roles.master == flatshard::DType::Float32)
    notes.push_back(
        {other, "master dtype",
         "float32, whatever the model was loaded as; FSDP without mixed precision would "
         "keep the load dtype, and a learning rate that works for one may not for the "
         "other."});
  if (!deepspeed && setting.strategy != Strategy::NoShard)
    notes.push_back(
        {other, "accumulation",
         "Accelerate keeps whole gradients until the last micro-step (no_sync); here each "
         "micro-step is reduced into the shard. reduce_moment = "
         "flatshard::ReduceMoment::Boundary does it Accelerate's way."});
  if (!deepspeed)
    notes.push_back(
        {other, "clipping", "clip_grad_norm_ in the script becomes Options::max_grad_norm."});
  if (setting.framework == Framework::Fsdp1 && !setting.prefetch_forward)
    notes.push_back({other, "fsdp_forward_prefetch",
                     "FSDP still gathers early because the CPU runs ahead (two units in flight); 0 "
                     "here gathers a unit when it is needed, 1 (the default) one ahead."});
  if (setting.wrap == Wrap::Size)
    notes.push_back(
        {other, "fsdp_min_num_params",
         "is the least size of a unit there; wrap::up_to merges modules up to a most."});
  if (setting.wrap == Wrap::Modules && !deepspeed)
    notes.push_back({other, "fsdp_auto_wrap_policy",
                     "make one Module per " + joined(setting.layers) + ": each is a unit."});
  if (is_hybrid(setting.strategy) && !setting.group)
    notes.push_back(
        {other, "shard_group",
         "FSDP takes the ranks of one node; set Options::shard_group to their number."});
  if (setting.max_live)
    notes.push_back(
        {other, "stage3_max_live_parameters",
         "is where gathering ahead stops there, and a hard cap here: a cap below what the "
         "strategy must hold is refused."});
  if (setting.rank0_loads)
    notes.push_back({other, "loading",
                     "rank 0 reads and the others receive, unit by unit: assign_from; nothing is "
                     "allocated whole on any other rank."});
  if (setting.parameters == Place::Nvme || setting.optimizer == Place::Nvme)
    notes.push_back(
        {other, "nvme_path",
         "is Options::nvme.folder here, one for all; a rank's files there have no names, "
         "and nothing outlives the run."});
  if (setting.framework == Framework::DeepSpeed && setting.persistence.value_or(0) > 0)
    notes.push_back({other, "stage3_param_persistence_threshold",
                     "counts elements of one parameter, here as there."});
  return notes;
}

void print_dtypes(Text out, const Setting& setting, const PrecisionChoice& precision) {
  const flatshard::PrecisionTraits& roles = precision.roles;
  const std::pair<const char*, flatshard::DType> rows[] = {
      {"master", roles.master},           {"compute, gather", roles.compute},
      {"reduced gradient", roles.reduce}, {"accumulated", roles.accumulate},
      {"optimizer state", roles.state},   {"checkpoint", roles.master}};
  fmt::format_to(out, "\nDtypes\n");
  for (const auto& [name, dtype] : rows)
    fmt::format_to(out, "  {:<18}{}\n", name, flatshard::name_of(dtype));
  if (setting.saves_16bit)
    fmt::format_to(out, "  {:<18}{}\n", "exported model", flatshard::name_of(roles.compute));
}

void print_notes(Text out, const std::string& title, NoteKind kind,
                 const std::vector<Note>& notes) {
  bool first = true;
  for (const Note& note : notes) {
    if (note.kind != kind) continue;
    if (first) fmt::format_to(out, "\n{}\n", title);
    first = false;
    fmt::format_to(out, "  {}: {}\n", note.key, note.text);
  }
}

void print_indented(Text out, const std::string& text) {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    fmt::format_to(out, "  {}\n", text.substr(start, end - start));
    start = end + 1;
  }
}

}  // namespace

std::string mixed_name(Mixed mixed) {
  return mixed == Mixed::Bf16 ? "bf16" : mixed == Mixed::Fp16 ? "fp16" : "no";
}

Map launch_with(const Map& launch, const Map& changed) {
  Map result = launch;
  for (const auto& [key, value] : changed) {
    const auto same = std::find_if(result.begin(), result.end(), [&name = key](const auto& entry) {
      return entry.first == name;
    });
    if (same == result.end())
      result.emplace_back(key, value);
    else
      same->second = value;
  }
  std::map<std::string, const Value*> sorted;
  for (const auto& [key, value] : result) sorted.emplace(key, &value);
  Map in_order;
  for (const auto& [key, value] : sorted) in_order.emplace_back(key, *value);
  return in_order;
}

Equivalent equivalent_of(const Setting& setting) {
  return setting.framework == Framework::DeepSpeed ? fsdp_for(setting) : deepspeed_for(setting);
}

std::string describe(const Setting& setting, const Equivalent& equivalent) {
  const PrecisionChoice precision = choose_precision(setting);
  std::string text;
  const Text out = std::back_inserter(text);
  fmt::format_to(out, "{}: {}\n\nflatshard\n", setting.source, setting.title);
  print_indented(out, cpp_text(setting));
  print_dtypes(out, setting, precision);
  std::vector<Note> notes = general_notes(setting, precision);
  notes.insert(notes.end(), setting.notes.begin(), setting.notes.end());
  print_notes(out, "Different in flatshard", other, notes);
  print_notes(out, "Without a counterpart in flatshard", none, notes);
  print_notes(out, "Without effect in flatshard", NoteKind::Ignored, notes);
  fmt::format_to(out, "\n{}\n", equivalent.title);
  print_indented(out, equivalent.text);
  const std::string to = setting.framework == Framework::DeepSpeed ? "FSDP" : "DeepSpeed";
  print_notes(out, "Different in " + to, other, equivalent.notes);
  print_notes(out, "Without a counterpart in " + to, none, equivalent.notes);
  return text;
}

}  // namespace flatshard_tool
