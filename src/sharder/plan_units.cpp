#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

/// Whether calls of other units may lie between the calls of this one.
bool interleaved(const UnitPlan& unit) {
  return unit.modules.back() - unit.modules.front() + 1 != count_of(unit.modules);
}

UnitPlan planned(const Unit& unit) {
  UnitPlan planned;
  planned.name = unit.name;
  planned.modules = unit.modules;
  planned.dedicated = interleaved(planned);
  planned.backward_overwrites = true;  // until a use says otherwise
  return planned;
}

/// A call of `module` touches `unit`; `borrowed`: only through a tied parameter.
void add_uses(UnitPlan& unit, const ModuleOptions& module, bool borrowed) {
  const bool repeated = borrowed || module.uses > 1;
  unit.uses += module.uses;
  unit.dedicated = unit.dedicated || repeated;
  unit.backward_overwrites = unit.backward_overwrites && module.backward_overwrites && !repeated;
}

}  // namespace

void plan_units(Plan& plan, const Model& model, const Options& options) {
  const std::vector<Unit> units = assign_units(model, options.wrap);
  plan.unit_of_module.resize(model.modules().size());
  for (const Unit& unit : units) {
    for (int module : unit.modules) at(plan.unit_of_module, module) = count_of(plan.units);
    plan.units.push_back(planned(unit));
  }
  for (int module = 0; module < count_of(model.modules()); ++module) {
    plan.units_of_call.push_back(touched_units(model, units, module));
    for (int unit : plan.units_of_call.back())
      add_uses(at(plan.units, unit), at(model.modules(), module).options,
               unit != at(plan.unit_of_module, module));
  }
}

}  // namespace flatshard::detail
