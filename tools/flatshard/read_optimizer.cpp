#include "read_optimizer.hpp"

#include <fmt/format.h>

#include <span>

namespace flatshard_tool {
namespace {

/// A functor and its members in the order of their declaration, which designated initializers need.
struct Functor {
  const char* name;
  std::span<const char* const> members;
};

constexpr const char* adamw[] = {"lr", "betas", "eps", "weight_decay"};
constexpr const char* lion[] = {"lr", "betas", "weight_decay"};
constexpr const char* sgd[] = {"lr", "momentum", "dampening", "weight_decay", "nesterov"};
constexpr const char* adagrad[] = {"lr", "lr_decay", "weight_decay", "eps"};

/// nullptr as name: none is built in.
Functor functor_of(const std::string& type, bool adam_w) {
  const bool decoupled = type == "AdamW" || type == "FusedAdam" || type == "CPUAdam" ||
                         type == "DeepSpeedCPUAdam" || (type == "Adam" && adam_w);
  if (decoupled) return {"AdamW", adamw};
  if (type == "Lion") return {"Lion", lion};
  if (type == "SGD") return {"SGD", sgd};
  if (type == "Adagrad") return {"Adagrad", adagrad};
  return {nullptr, {}};
}

void append(std::string& code, const std::string& member) {
  code += (code.empty() ? "" : ", ") + member;
}

void read_betas(Section& params, std::string& code) {
  const Value* betas = params.value("betas");
  if (betas == nullptr || params.is_auto("betas")) return;
  const List* list = betas->list();
  if (list == nullptr || list->size() != 2) params.fail("betas", "must be two numbers");
  for (std::size_t i = 0; i < 2; ++i) {
    const Value& beta = (*list)[i];
    const double number = beta.number() != nullptr ? *beta.number() : beta == Value(0) ? 0 : -1;
    if (number < 0 || number >= 1)
      params.fail("betas", "must be two numbers in [0, 1), not " + to_string(*betas));
    append(code, fmt::format(".beta{} = {}", i + 1, number));
  }
}

std::string initializers(Section& params, const Functor& functor) {
  std::string code;
  for (const std::string member : functor.members) {
    if (member == "betas") {
      read_betas(params, code);
    } else if (member == "nesterov") {
      if (params.boolean(member).value_or(false)) append(code, ".nesterov = true");
    } else if (const auto number = params.number(member)) {
      append(code, fmt::format(".{} = {}", member, *number));
    }
  }
  return code;
}

}  // namespace

void read_optimizer(Section& file, Setting& setting) {
  std::optional<Section> optimizer = file.section("optimizer");
  if (!optimizer) return;
  const std::string type = optimizer->text("type").value_or("");
  if (type.empty()) optimizer->fail("type", "is missing");
  optimizer->skip("legacy_fusion");
  std::optional<Section> given = optimizer->section("params");
  optimizer->expect_all_read();
  const Value empty{Map{}};
  Section params = given ? *given : Section(empty, setting.source, "optimizer.params");
  const bool adam_w = params.boolean("adam_w_mode").value_or(true);
  for (const char* key : {"torch_adam", "bias_correction", "amsgrad"}) params.skip(key);
  const Functor functor = functor_of(type, adam_w);
  if (functor.name == nullptr) {
    setting.note(
        NoteKind::NoCounterpart, "optimizer.type",
        type + " is not built in: write it as a functor where it works element by element.");
    return;
  }
  setting.optimizer_code =
      fmt::format("flatshard::{}{{{}}}", functor.name, initializers(params, functor));
  params.expect_all_read();
  if (type == "Adam")
    setting.note(NoteKind::Difference, "optimizer.type",
                 "DeepSpeed's Adam decays weights as AdamW does.");
  if (params.value("amsgrad") != nullptr && *params.value("amsgrad") == Value(true))
    setting.note(NoteKind::NoCounterpart, "optimizer.params.amsgrad",
                 "is not built in: write it as a functor.");
}

}  // namespace flatshard_tool
