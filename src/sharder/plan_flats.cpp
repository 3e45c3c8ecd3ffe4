#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/policy/rules.hpp>

#include <algorithm>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

/// A dtype that holds both exactly.
DType join(DType left, DType right) {
  if (left == right) return left;
  if (size_of(left) != size_of(right)) return size_of(left) > size_of(right) ? left : right;
  return DType::Float32;  // two different 16-bit (or 8-bit) formats
}

/// What parameters of one flat have in common.
struct FlatKey {
  PrecisionTraits roles;
  bool requires_grad = true;
  bool persistent = false;
  int skip_module = -1;  // the module whose parameters are not updated when it is unused; -1: none
  int time_group = 0;    // whose updates are counted together
  friend bool operator==(const FlatKey&, const FlatKey&) = default;
};

/// Every role of a parameter with a compute dtype of its own holds that dtype exactly.
PrecisionTraits widened(const PrecisionTraits& roles, DType own) {
  PrecisionTraits widened = roles;
  widened.compute = own;
  for (DType* role : {&widened.master, &widened.reduce, &widened.accumulate, &widened.state})
    *role = join(*role, own);
  return widened;
}

/// A frozen parameter has one shard in the compute dtype and nothing else.
PrecisionTraits frozen(DType compute) { return {compute, compute, compute, compute, compute}; }

bool is_persistent(const ParameterSpec& parameter, const Plan& plan, const Options& options) {
  const bool released = plan.request.strategy.parameters_whole != ParametersWhole::Always;
  const bool leaves = plan.request.offload.parameters != Tier::Device;
  return ((released && plan.shard_group > 1) || leaves) && options.persistence_threshold > 0 &&
         parameter.numel() <= options.persistence_threshold;
}

Tier rest_of(const FlatKey& key, const Plan& plan) {
  return key.persistent ? Tier::Device : plan.request.offload.parameters;
}

/// Between uses, wherever that is. Ranks of a node share its disk, which need not give every one of
/// them what they can give each other: there slices rest, and are gathered.
bool rests_whole(const FlatKey& key, const Plan& plan) {
  return key.persistent || plan.shard_group == 1 ||
         (plan.request.strategy.parameters_whole == ParametersWhole::Always &&
          rest_of(key, plan) != Tier::Nvme);
}

FlatKey key_of(const ParameterSpec& parameter, const ModuleSpec& module, const Plan& plan,
               const Options& options) {
  const PrecisionTraits& roles = plan.request.precision;
  const std::optional<DType> own = parameter.options.dtype;
  FlatKey key{own ? widened(roles, *own) : roles};
  key.persistent = is_persistent(parameter, plan, options);
  key.requires_grad = parameter.options.requires_grad;
  if (key.requires_grad) key.time_group = parameter.options.time_group;
  if (!key.requires_grad)
    key.roles = frozen(key.roles.compute);
  else if (module.options.skip_when_unused)
    key.skip_module = parameter.module;
  return key;
}

ParametersWhole whole_of(const FlatKey& key, const UnitPlan& unit, const Plan& plan) {
  ParametersWhole whole = plan.request.strategy.parameters_whole;
  if (rest_of(key, plan) == Tier::Device) {
    if (rests_whole(key, plan)) return ParametersWhole::Always;
  } else if (whole == ParametersWhole::Always) {
    whole = ParametersWhole::PerUse;
  }
  if (whole == ParametersWhole::PerUse && unit.dedicated) return ParametersWhole::UntilBackward;
  return whole;
}

/// Nothing has to be added, moved or converted between backward and the accumulated gradient.
bool writes_in_place(const FlatKey& key, const Plan& plan) {
  const bool starts_there = plan.moment == ReduceMoment::Boundary || plan.world == 1;
  return key.requires_grad && plan.max_micro_steps == 1 && starts_there &&
         key.roles.compute == key.roles.accumulate && key.roles.reduce == key.roles.accumulate;
}

Flat make_flat(const FlatKey& key, int unit_index, const Plan& plan) {
  const UnitPlan& unit = at(plan.units, unit_index);
  return {.label = fmt::format("{}/{}", unit.name, unit.flats.size()),
          .unit = unit_index,
          .parameters = {},
          .master = key.roles.master,
          .compute = key.roles.compute,
          .reduce = key.roles.reduce,
          .accumulate = key.roles.accumulate,
          .state = key.roles.state,
          .requires_grad = key.requires_grad,
          .persistent = key.persistent,
          .skip_when_unused = key.skip_module >= 0,
          .whole = whole_of(key, unit, plan),
          .parameters_rest = rest_of(key, plan),
          .rests_whole = rests_whole(key, plan),
          .layout = FlatLayout({}, 1),
          .partition = Partition(0, 1, 1),
          .master_is_compute = key.roles.master == key.roles.compute &&
                               rest_of(key, plan) == plan.request.offload.optimizer &&
                               rest_of(key, plan) != Tier::Nvme,
          .gradient_in_place = writes_in_place(key, plan),
          .step_row = step_row(key.roles),
          .runs = {}};
}

/// Flats so far and, for each unit, the keys of its own (in the order of UnitPlan::flats).
class Flattener {
 public:
  explicit Flattener(Plan& plan) : plan_(plan), keys_(plan.units.size()) {}

  /// Puts the parameter into the unit's flat of that key.
  void add(int parameter, int unit, const FlatKey& key) {
    const int flat = flat_for(key, unit);
    at(plan_.flats, flat).parameters.push_back(parameter);
    if (key.requires_grad) at(plan_.units, unit).trainable = true;
  }

 private:
  int flat_for(const FlatKey& key, int unit) {
    std::vector<FlatKey>& keys = at(keys_, unit);
    std::vector<int>& flats = at(plan_.units, unit).flats;
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found != keys.end()) return at(flats, static_cast<int>(found - keys.begin()));
    plan_.flats.push_back(make_flat(key, unit, plan_));
    keys.push_back(key);
    flats.push_back(count_of(plan_.flats) - 1);
    return flats.back();
  }

  Plan& plan_;
  std::vector<std::vector<FlatKey>> keys_;
};

void check_parameter(const ParameterSpec& parameter, const Options& options) {
  const int group = parameter.options.group;
  FLATSHARD_EXPECTS(group >= 0 && group < count_of(options.groups),
                    fmt::format("parameter '{}' is in hyper-parameter group {}, but "
                                "Options::groups has {}",
                                parameter.name, group, options.groups.size()));
}

void order_by_group(Flat& flat, const Model& model) {
  const auto place = [&](int parameter) {
    return std::pair(at(model.parameters(), parameter).options.group, parameter);
  };
  std::sort(flat.parameters.begin(), flat.parameters.end(),
            [&](int left, int right) { return place(left) < place(right); });
}

/// Where gradients of one micro-step are the step's, and sums of them are formed alike at either
/// moment, a step on the host takes each as soon as backward has it.
void take_gradients_at_once(Plan& plan) {
  const bool single = plan.max_micro_steps == 1 && plan.moment == ReduceMoment::Boundary;
  const bool alike = std::all_of(plan.flats.begin(), plan.flats.end(), [](const Flat& flat) {
    return !flat.requires_grad || wide_of(flat.accumulate) == wide_of(flat.compute);
  });
  if (single && alike) plan.moment = ReduceMoment::Micro;
  for (Flat& flat : plan.flats)
    if (sums_on_host(plan)) flat.gradient_in_place = false;
}

/// They are not widened for sums that nobody forms: where a step reads what is delivered, it widens
/// it itself, which is exact.
void keep_gradients_as_delivered(Plan& plan) {
  if (!sums_on_host(plan) || plan.max_micro_steps > 1) return;
  for (Flat& flat : plan.flats) {
    StepRow narrow = flat.step_row;
    narrow.gradient = flat.reduce;
    if (!flat.requires_grad || !is_built(narrow, NarrowGradientRows{})) continue;
    flat.step_row = narrow;
    flat.accumulate = flat.reduce;
  }
}

void index_parameters(Plan& plan, const Model& model) {
  plan.flat_of_parameter.resize(model.parameters().size());
  plan.slot_of_parameter.resize(model.parameters().size());
  for (int flat = 0; flat < count_of(plan.flats); ++flat) {
    order_by_group(at(plan.flats, flat), model);
    const std::vector<int>& parameters = at(plan.flats, flat).parameters;
    for (int slot = 0; slot < count_of(parameters); ++slot) {
      at(plan.flat_of_parameter, at(parameters, slot)) = flat;
      at(plan.slot_of_parameter, at(parameters, slot)) = slot;
    }
  }
}

}  // namespace

void plan_flats(Plan& plan, const Model& model, const Options& options) {
  FLATSHARD_EXPECTS(options.persistence_threshold >= 0,
                    fmt::format("persistence_threshold is {}, not a count of elements",
                                options.persistence_threshold));
  Flattener flattener(plan);
  for (int unit = 0; unit < count_of(plan.units); ++unit)
    for (int module : at(plan.units, unit).modules)
      for (int parameter : at(model.modules(), module).parameters) {
        const ParameterSpec& spec = at(model.parameters(), parameter);
        check_parameter(spec, options);
        flattener.add(parameter, unit, key_of(spec, at(model.modules(), module), plan, options));
      }
  if (steps_on_host(plan)) take_gradients_at_once(plan);
  keep_gradients_as_delivered(plan);
  index_parameters(plan, model);
}

}  // namespace flatshard::detail
