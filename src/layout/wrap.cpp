#include <flatshard/layout/wrap.hpp>

#include <flatshard/core/error.hpp>
#include <flatshard/layout/checked.hpp>
#include <flatshard/layout/module_name.hpp>

#include <fmt/format.h>

#include <map>
#include <numeric>

namespace flatshard::wrap {
namespace {

Elements stored_elements(const Model& model, const ModuleSpec& module) {
  Elements sum = 0;
  for (const int parameter : module.parameters) {
    const Elements numel = model.parameters()[static_cast<std::size_t>(parameter)].numel();
    sum = detail::checked_add(sum, numel, "wrap::up_to");
  }
  return sum;
}

std::string longest_prefix(const std::vector<std::string>& prefixes, const std::string& name) {
  std::string longest;
  for (const std::string& prefix : prefixes) {
    if (prefix.size() > longest.size() && contains_module(prefix, name)) longest = prefix;
  }
  return longest;
}

std::vector<int> merge_up_to(const Model& model, Elements limit) {
  std::vector<int> unit_of;
  int unit = 0;
  Elements filled = 0;
  for (const ModuleSpec& module : model.modules()) {
    const Elements more = stored_elements(model, module);
    if (!unit_of.empty() && more > limit - filled) {
      ++unit;
      filled = 0;
    }
    filled += more;
    unit_of.push_back(unit);
  }
  return unit_of;
}

}  // namespace

WrapPolicy each_module() {
  return [](const Model& model) {
    std::vector<int> unit_of(model.modules().size());
    std::iota(unit_of.begin(), unit_of.end(), 0);
    return unit_of;
  };
}

WrapPolicy all_in_one() {
  return [](const Model& model) { return std::vector<int>(model.modules().size(), 0); };
}

WrapPolicy up_to(Elements elements) {
  FLATSHARD_EXPECTS(elements >= 1,
                    fmt::format("wrap::up_to: {} elements, must be at least 1", elements));
  return [elements](const Model& model) { return merge_up_to(model, elements); };
}

WrapPolicy by_prefix(std::vector<std::string> prefixes) {
  return [prefixes = std::move(prefixes)](const Model& model) {
    std::map<std::string, int> unit_of_prefix;
    std::vector<int> unit_of;
    for (const ModuleSpec& module : model.modules()) {
      const int next = static_cast<int>(unit_of_prefix.size());
      const std::string prefix = longest_prefix(prefixes, module.name);
      unit_of.push_back(unit_of_prefix.try_emplace(prefix, next).first->second);
    }
    return unit_of;
  };
}

}  // namespace flatshard::wrap
