#include "read_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

namespace flatshard_tool {
namespace {

/// A functor and its members in the order of their declaration, which designated initializers need.
struct Functor {
  const char* name;
  std::span<const char* const> members;
  const char* also;  // an initializer that follows from other keys; it stands before maximize
};

constexpr const char* adam[] = {"lr", "betas", "eps", "weight_decay", "maximize"};
constexpr const char* nadam[] = {
    "lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay", "maximize"};
constexpr const char* rmsprop[] = {"lr", "alpha", "eps", "weight_decay", "maximize"};
constexpr const char* rmsprop_momentum[] = {"lr",           "alpha",    "eps",
                                            "weight_decay", "momentum", "maximize"};
constexpr const char* lion[] = {"lr", "betas", "weight_decay"};
constexpr const char* sgd[] = {"lr",           "momentum", "dampening",
                               "weight_decay", "nesterov", "maximize"};
constexpr const char* adagrad[] = {"lr", "lr_decay", "weight_decay", "eps"};
constexpr std::string_view flags[] = {"nesterov", "maximize", "decoupled_weight_decay"};

/// Adam and AdamW, under all names of DeepSpeed.
std::optional<Functor> adam_of(const std::string& type, Section& params) {
  const bool adam_w = params.boolean("adam_w_mode").value_or(true);
  const bool amsgrad = params.boolean("amsgrad").value_or(false);
  const bool decoupled = type == "AdamW" || type == "FusedAdam" || type == "CPUAdam" ||
                         type == "DeepSpeedCPUAdam" || (type == "Adam" && adam_w);
  if (!decoupled && type != "Adam") return {};
  if (amsgrad && decoupled)  // torch.optim.AdamW decays by 0.01 where nothing is said
    return Functor{"AMSGrad", adam,
                   params.has("weight_decay")
                       ? ".decoupled_weight_decay = true"
                       : ".weight_decay = 0.01, .decoupled_weight_decay = true"};
  if (amsgrad) return Functor{"AMSGrad", adam, ""};
  return Functor{decoupled ? "AdamW" : "Adam", adam, ""};
}

Functor rmsprop_of(Section& params) {
  const bool centered = params.boolean("centered").value_or(false);
  if (params.number("momentum").value_or(0) > 0)
    return {centered ? "CenteredRMSPropMomentum" : "RMSPropMomentum", rmsprop_momentum, ""};
  return {centered ? "CenteredRMSProp" : "RMSProp", rmsprop, ""};
}

/// None: not built in.
std::optional<Functor> functor_of(const std::string& type, Section& params) {
  if (const auto functor = adam_of(type, params)) return functor;
  if (type == "NAdam") return Functor{"NAdam", nadam, ""};
  if (type == "RMSprop") return rmsprop_of(params);
  if (type == "Lion") return Functor{"Lion", lion, ""};
  if (type == "SGD") return Functor{"SGD", sgd, ""};
  if (type == "Adagrad") return Functor{"Adagrad", adagrad, ""};
  return {};
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
    } else if (std::find(std::begin(flags), std::end(flags), member) != std::end(flags)) {
      if (member == "maximize" && *functor.also != '\0') append(code, functor.also);
      if (params.boolean(member).value_or(false)) append(code, fmt::format(".{} = true", member));
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
  for (const char* key : {"torch_adam", "bias_correction"}) params.skip(key);
  const std::optional<Functor> functor = functor_of(type, params);
  if (!functor) {
    setting.note(
        NoteKind::NoCounterpart, "optimizer.type",
        type + " is not built in: write it as a functor where it works element by element.");
    return;
  }
  setting.optimizer_code =
      fmt::format("flatshard::{}{{{}}}", functor->name, initializers(params, *functor));
  params.expect_all_read();
  if (type == "Adam" && params.boolean("adam_w_mode").value_or(true))
    setting.note(NoteKind::Difference, "optimizer.type",
                 "DeepSpeed's Adam decays weights as AdamW does.");
  if (params.boolean("amsgrad").value_or(false) && !params.boolean("torch_adam").value_or(false))
    setting.note(NoteKind::Difference, "optimizer.params.amsgrad",
                 "DeepSpeed has it only with torch_adam; its own Adam refuses it.");
}

}  // namespace flatshard_tool
