#include <flatshard/layout/unit.hpp>

#include <flatshard/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace flatshard {
namespace {

void check_labels(const Model& model, const std::vector<int>& labels) {
  const std::size_t modules = model.modules().size();
  FLATSHARD_EXPECTS(
      labels.size() == modules,
      fmt::format("wrap policy: gave {} numbers for {} modules", labels.size(), modules));
  for (std::size_t m = 0; m < modules; ++m) {
    FLATSHARD_EXPECTS(
        labels[m] >= 0 && static_cast<std::size_t>(labels[m]) < modules,
        fmt::format("wrap policy: gave unit {} for module '{}' (index {}), must be in [0, {})",
                    labels[m], model.modules()[m].name, m, modules));
  }
}

std::string name_of_module(const Model& model, int module) {
  const std::string& name = model.modules()[static_cast<std::size_t>(module)].name;
  return name.empty() ? "root" : name;
}

std::string name_of_unit(const Model& model, const Unit& unit) {
  const std::string first = name_of_module(model, unit.modules.front());
  if (unit.modules.size() == 1) return first;
  return first + ".." + name_of_module(model, unit.modules.back());
}

void add_module(const Model& model, int module, Unit& unit) {
  const ModuleSpec& spec = model.modules()[static_cast<std::size_t>(module)];
  unit.modules.push_back(module);
  unit.parameters.insert(unit.parameters.end(), spec.parameters.begin(), spec.parameters.end());
}

}  // namespace

std::vector<Unit> assign_units(const Model& model, const WrapPolicy& wrap) {
  FLATSHARD_EXPECTS(wrap != nullptr, "wrap policy: is empty");
  const std::vector<int> labels = wrap(model);
  check_labels(model, labels);
  std::vector<Unit> units;
  std::vector<int> unit_of_label(labels.size(), -1);
  for (std::size_t m = 0; m < labels.size(); ++m) {
    int& unit = unit_of_label[static_cast<std::size_t>(labels[m])];
    if (unit < 0) {
      unit = static_cast<int>(units.size());
      units.emplace_back();
    }
    add_module(model, static_cast<int>(m), units[static_cast<std::size_t>(unit)]);
  }
  for (Unit& unit : units) {
    std::sort(unit.parameters.begin(), unit.parameters.end());
    unit.name = name_of_unit(model, unit);
  }
  return units;
}

int unit_of(std::span<const Unit> units, int module) {
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& unit) {
    return std::binary_search(unit.modules.begin(), unit.modules.end(), module);
  });
  FLATSHARD_EXPECTS(found != units.end(), fmt::format("unit_of: no module {}", module));
  return static_cast<int>(found - units.begin());
}

std::vector<int> touched_units(const Model& model, std::span<const Unit> units, int module) {
  std::vector<int> touched{unit_of(units, module)};
  for (const int parameter : model.modules()[static_cast<std::size_t>(module)].tied) {
    const int home = model.parameters()[static_cast<std::size_t>(parameter)].module;
    touched.push_back(unit_of(units, home));
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  return touched;
}

}  // namespace flatshard
