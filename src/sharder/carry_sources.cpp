// Which tensor of the old Sharder each tensor of the new one comes from.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/layout/nearest_names.hpp>

#include <set>

#include "carry_plan.hpp"

namespace flatshard::detail {

namespace {

using Kind = StateTensor::Kind;

const ParameterSpec& parameter_of(const Model& model, int index) {
  return model.parameters()[static_cast<std::size_t>(index)];
}

bool trains(const Model& model, int parameter) {
  return parameter_of(model, parameter).options.requires_grad;
}

std::string text_of(const Shape& shape) {
  std::string text;
  for (const std::int64_t dimension : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(dimension);
  return "(" + text + ")";
}

std::string name_in(const Model& model, const StateTensor& tensor) {
  if (tensor.kind == Kind::Buffer)
    return fmt::format("buffer '{}'", model.buffers()[static_cast<std::size_t>(tensor.index)].name);
  return fmt::format("parameter '{}'", parameter_of(model, tensor.index).name);
}

/// Parameters (by all their names) and buffers of the old model.
class OldNames {
 public:
  explicit OldNames(const Model& model) {
    for (std::size_t index = 0; index < model.parameters().size(); ++index) {
      parameters_[model.parameters()[index].name] = static_cast<int>(index);
      for (const std::string& alias : model.parameters()[index].aliases)
        parameters_[alias] = static_cast<int>(index);
    }
    for (std::size_t index = 0; index < model.buffers().size(); ++index)
      buffers_[model.buffers()[index].name] = static_cast<int>(index);
  }

  /// -1: there is none.
  int buffer(const BufferSpec& wanted) const { return index_of(buffers_, wanted.name); }
  int parameter(const ParameterSpec& wanted) const {
    int found = index_of(parameters_, wanted.name);
    for (const std::string& alias : wanted.aliases) {
      const int other = index_of(parameters_, alias);
      FLATSHARD_EXPECTS(found < 0 || other < 0 || found == other,
                        fmt::format("carry_over: parameter '{}' is tied to '{}', which was another "
                                    "parameter so far",
                                    wanted.name, alias));
      found = std::max(found, other);
    }
    return found;
  }
  std::string near(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto* indices : {&parameters_, &buffers_})
      for (const auto& [known, index] : *indices) names.push_back(known);
    const std::vector<std::string> nearest = nearest_names(name, names);
    std::string text;
    for (const std::string& close : nearest) text += (text.empty() ? "; near it: " : ", ") + close;
    return text;
  }

 private:
  using Indices = std::map<std::string, int>;
  static int index_of(const Indices& indices, const std::string& name) {
    const auto found = indices.find(name);
    return found == indices.end() ? -1 : found->second;
  }

  Indices parameters_, buffers_;
};

/// A parameter that ceases to train keeps the values that forward saw.
bool rounds_as_forward_did(const Sharded& from, const Sharded& to, const StateTensor& old,
                           const StateTensor& fresh) {
  if (fresh.kind != Kind::Parameter || trains(to.model, fresh.index)) return false;
  const int flat = from.plan.flat_of_parameter[static_cast<std::size_t>(old.index)];
  return from.plan.flats[static_cast<std::size_t>(flat)].compute ==
         dtype_of_tensor(to.plan, to.model, fresh);
}

void expect_fit(const Sharded& from, const Sharded& to, const StateTensor& old,
                const StateTensor& fresh, const CarryOverOptions& options) {
  const std::string name = name_in(to.model, fresh);
  const Shape& has = shape_of_tensor(from.model, old);
  const Shape& needs = shape_of_tensor(to.model, fresh);
  FLATSHARD_EXPECTS(has == needs, fmt::format("carry_over: {} has shape {}, and had {}", name,
                                              text_of(needs), text_of(has)));
  const DType stored = dtype_of_tensor(from.plan, from.model, old);
  const DType own = dtype_of_tensor(to.plan, to.model, fresh);
  FLATSHARD_EXPECTS(
      fresh.kind != Kind::Buffer || stored == own,
      fmt::format("carry_over: {} is {}, and was {}", name, name_of(own), name_of(stored)));
  const bool fits = stored == own || holds_exactly(own, stored) || options.allow_downcast ||
                    rounds_as_forward_did(from, to, old, fresh);
  FLATSHARD_EXPECTS(fits, fmt::format("carry_over: {} of {} was {}; {} cannot hold it exactly "
                                      "(allow_downcast would round)",
                                      fresh.kind == Kind::State ? "a state" : "the value", name,
                                      name_of(stored), name_of(own)));
}

/// Of the parameter or buffer that the tensor belongs to; -1: the old one has it not, and need not.
int old_index(const OldNames& names, const Model& model, const StateTensor& fresh,
              const CarryOverOptions& options) {
  const auto at = static_cast<std::size_t>(fresh.index);
  const bool is_buffer = fresh.kind == Kind::Buffer;
  const int index =
      is_buffer ? names.buffer(model.buffers()[at]) : names.parameter(model.parameters()[at]);
  const std::string& name = is_buffer ? model.buffers()[at].name : model.parameters()[at].name;
  FLATSHARD_EXPECTS(index >= 0 || options.allow_missing,
                    fmt::format("carry_over: {} is new{} (allow_missing would keep its values)",
                                name_in(model, fresh), names.near(name)));
  return index;
}

void expect_all_taken(const Model& old, const std::set<StateTensor>& taken) {
  const auto expect = [&](const StateTensor& tensor) {
    FLATSHARD_EXPECTS(taken.count(tensor) == 1,
                      fmt::format("carry_over: nothing takes {} (allow_unused would leave it)",
                                  name_in(old, tensor)));
  };
  for (int index = 0; index < static_cast<int>(old.parameters().size()); ++index)
    expect({Kind::Parameter, index, 0});
  for (int index = 0; index < static_cast<int>(old.buffers().size()); ++index)
    expect({Kind::Buffer, index, 0});
}

}  // namespace

CarryPlan plan_sources(const Sharded& from, const Sharded& to, const CarryOverOptions& options) {
  const OldNames names(from.model);
  CarryPlan plan;
  std::set<StateTensor> taken;
  for (const StateTensor& fresh : state_tensors(to.plan, to.model)) {
    if (fresh.kind == Kind::State && !options.optimizer_state) continue;
    const int index = old_index(names, to.model, fresh, options);
    if (index < 0) continue;
    const StateTensor old{fresh.kind, index, fresh.state};
    if (fresh.kind == Kind::State && !trains(from.model, index)) {
      plan.zeroed.push_back(fresh);
      continue;
    }
    expect_fit(from, to, old, fresh, options);
    plan.sources[fresh] = old;
    taken.insert(old);
  }
  if (!options.allow_unused) expect_all_taken(from.model, taken);
  return plan;
}

}  // namespace flatshard::detail
