#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <tuple>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

/// The narrowest dtype that holds both exactly.
DType join(DType left, DType right) {
  if (left == right) return left;
  if (size_of(left) != size_of(right)) return size_of(left) > size_of(right) ? left : right;
  return DType::Float32;  // two different 16-bit (or 8-bit) formats
}

/// What parameters of one flat have in common.
struct FlatKey {
  DType master, compute, reduce, accumulate, state;
  bool requires_grad, persistent;
  int skip_module;  // the module whose parameters are not updated when it is unused; -1: none
  friend bool operator==(const FlatKey&, const FlatKey&) = default;
};

FlatKey key_of(const ParameterSpec& parameter, const ModuleSpec& module, const Plan& plan,
               const Options& options) {
  const PrecisionTraits& roles = plan.request.precision;
  const bool always = plan.request.strategy.parameters_whole == ParametersWhole::Always;
  const bool persistent =
      !always && plan.shard_group > 1 && parameter.numel() <= options.persistence_threshold;
  FlatKey key{roles.master, roles.compute,
              roles.reduce, roles.accumulate,
              roles.state,  parameter.options.requires_grad,
              persistent,   module.options.skip_when_unused ? parameter.module : -1};
  if (const std::optional<DType> own = parameter.options.dtype) {
    key.compute = *own;
    key.master = join(roles.master, *own);
    key.reduce = join(roles.reduce, *own);
    key.accumulate = join(roles.accumulate, *own);
    key.state = join(roles.state, *own);
  }
  if (!key.requires_grad) {  // one shard in the compute dtype and nothing else
    key.master = key.reduce = key.accumulate = key.state = key.compute;
    key.skip_module = -1;
  }
  return key;
}

ParametersWhole whole_of(const FlatKey& key, const UnitPlan& unit, const Plan& plan) {
  const ParametersWhole strategy = plan.request.strategy.parameters_whole;
  if (key.persistent || plan.shard_group == 1) return ParametersWhole::Always;
  if (strategy == ParametersWhole::PerUse && unit.dedicated) return ParametersWhole::UntilBackward;
  return strategy;
}

Flat make_flat(const FlatKey& key, int unit_index, const UnitPlan& unit, const Plan& plan) {
  Flat flat{.label = fmt::format("{}/{}", unit.name, unit.flats.size()),
            .unit = unit_index,
            .parameters = {},
            .master = key.master,
            .compute = key.compute,
            .reduce = key.reduce,
            .accumulate = key.accumulate,
            .state = key.state,
            .requires_grad = key.requires_grad,
            .persistent = key.persistent,
            .skip_when_unused = key.skip_module >= 0,
            .whole = whole_of(key, unit, plan),
            .layout = FlatLayout({}, 1),
            .partition = Partition(0, 1, 1),
            .master_is_compute = key.master == key.compute,
            .step_row = {},
            .runs = {}};
  const bool reduced_in_place = plan.moment == ReduceMoment::Boundary || plan.world == 1;
  flat.gradient_in_place = key.requires_grad && plan.max_micro_steps == 1 && reduced_in_place &&
                           key.compute == key.accumulate && key.reduce == key.accumulate;
  const bool stochastic =
      plan.request.precision.rounding == Rounding::Stochastic && key.master == DType::BFloat16;
  flat.step_row = {key.master,  key.accumulate,          key.state,
                   key.compute, !flat.master_is_compute, stochastic};
  return flat;
}

/// Sorts the unit's parameters into flats; a parameter's flat is found by its key.
void add_flats(Plan& plan, const Model& model, const Options& options, int unit_index) {
  UnitPlan& unit = plan.units[static_cast<std::size_t>(unit_index)];
  std::vector<FlatKey> keys;
  for (int index = 0; index < static_cast<int>(model.parameters().size()); ++index) {
    const ParameterSpec& parameter = model.parameters()[static_cast<std::size_t>(index)];
    const auto home = static_cast<std::size_t>(parameter.module);
    if (plan.unit_of_module[home] != unit_index) continue;
    const FlatKey key = key_of(parameter, model.modules()[home], plan, options);
    const auto found = std::find(keys.begin(), keys.end(), key);
    const auto position = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key);
      Flat flat = make_flat(key, unit_index, unit, plan);
      unit.flats.push_back(static_cast<int>(plan.flats.size()));
      plan.flats.push_back(std::move(flat));
    }
    Flat& flat = plan.flats[static_cast<std::size_t>(unit.flats[position])];
    flat.parameters.push_back(index);
    unit.trainable = unit.trainable || flat.requires_grad;
  }
}

void order_by_group(Flat& flat, const Model& model) {
  std::stable_sort(flat.parameters.begin(), flat.parameters.end(), [&](int left, int right) {
    return model.parameters()[static_cast<std::size_t>(left)].options.group <
           model.parameters()[static_cast<std::size_t>(right)].options.group;
  });
}

void check_groups(const Model& model, const Options& options) {
  for (const ParameterSpec& parameter : model.parameters())
    FLATSHARD_EXPECTS(
        parameter.options.group >= 0 &&
            parameter.options.group < static_cast<int>(options.groups.size()),
        fmt::format("parameter '{}' is in hyper-parameter group {}, but Options::groups has {}",
                    parameter.name, parameter.options.group, options.groups.size()));
}

/// Whether calls of other units may lie between the calls of this one.
bool interleaved(const UnitPlan& unit) {
  return unit.modules.back() - unit.modules.front() + 1 != static_cast<int>(unit.modules.size());
}

/// How often calls of one phase touch each unit, and which units live across others' calls.
void count_uses(Plan& plan, const Model& model) {
  for (UnitPlan& unit : plan.units) unit.dedicated = interleaved(unit);
  for (std::size_t module = 0; module < model.modules().size(); ++module) {
    const ModuleOptions& options = model.modules()[module].options;
    for (int touched : plan.units_of_call[module]) {
      UnitPlan& unit = plan.units[static_cast<std::size_t>(touched)];
      const bool borrowed = touched != plan.unit_of_module[module];
      unit.uses += options.uses;
      unit.dedicated = unit.dedicated || borrowed || options.uses > 1;
      unit.backward_overwrites =
          unit.backward_overwrites && options.backward_overwrites && !borrowed && options.uses == 1;
    }
  }
}

void copy_units(Plan& plan, const Model& model, const std::vector<Unit>& units) {
  plan.unit_of_module.resize(model.modules().size());
  for (const Unit& unit : units) {
    for (int module : unit.modules)
      plan.unit_of_module[static_cast<std::size_t>(module)] = static_cast<int>(plan.units.size());
    UnitPlan planned;
    planned.name = unit.name;
    planned.modules = unit.modules;
    planned.backward_overwrites = true;
    plan.units.push_back(std::move(planned));
  }
  for (int module = 0; module < static_cast<int>(model.modules().size()); ++module)
    plan.units_of_call.push_back(touched_units(model, units, module));
}

void index_parameters(Plan& plan, const Model& model) {
  plan.flat_of_parameter.resize(model.parameters().size());
  plan.slot_of_parameter.resize(model.parameters().size());
  for (std::size_t flat = 0; flat < plan.flats.size(); ++flat) {
    order_by_group(plan.flats[flat], model);
    const std::vector<int>& parameters = plan.flats[flat].parameters;
    for (std::size_t slot = 0; slot < parameters.size(); ++slot) {
      const auto parameter = static_cast<std::size_t>(parameters[slot]);
      plan.flat_of_parameter[parameter] = static_cast<int>(flat);
      plan.slot_of_parameter[parameter] = static_cast<int>(slot);
    }
  }
}

}  // namespace

void plan_units(Plan& plan, const Model& model, const Options& options) {
  check_groups(model, options);
  copy_units(plan, model, assign_units(model, options.wrap));
  count_uses(plan, model);
  for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit)
    add_flats(plan, model, options, unit);
  index_parameters(plan, model);
}

}  // namespace flatshard::detail
