#include <flatshard/layout/model.hpp>

#include <flatshard/core/error.hpp>
#include <flatshard/layout/module_name.hpp>
#include <flatshard/layout/nearest_names.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace flatshard {
namespace {

void check_shape(std::string_view name, const Shape& shape) {
  Elements product = 1;  // zeros left out: what numel_of multiplies must never overflow
  for (const std::int64_t dimension : shape) {
    FLATSHARD_EXPECTS(dimension >= 0, fmt::format("'{}': shape ({}) has a negative dimension", name,
                                                  fmt::join(shape, ", ")));
    const bool overflow = dimension != 0 && __builtin_mul_overflow(product, dimension, &product);
    FLATSHARD_EXPECTS(!overflow, fmt::format("'{}': shape ({}) has more than 2^63 - 1 elements",
                                             name, fmt::join(shape, ", ")));
  }
}

void check_options(std::string_view name, const ParameterOptions& options) {
  FLATSHARD_EXPECTS(!options.dtype || is_floating(*options.dtype),
                    fmt::format("'{}': {} is no floating dtype; register it as a buffer", name,
                                name_of(*options.dtype)));
  FLATSHARD_EXPECTS(options.group >= 0,
                    fmt::format("'{}': group is {}, must be at least 0", name, options.group));
}

void insert_once(std::vector<int>& ascending, int value) {
  const auto place = std::lower_bound(ascending.begin(), ascending.end(), value);
  if (place == ascending.end() || *place != value) ascending.insert(place, value);
}

template <class Container>
auto& at(Container& container, int index) {
  return container[static_cast<std::size_t>(index)];
}

}  // namespace

Parameter Module::add(std::string_view name, Shape shape, ParameterOptions options) {
  Model& model = *model_;
  check_shape(name, shape);
  check_options(name, options);
  const int index = static_cast<int>(model.parameters_.size());
  std::string full = model.claim_name(index_, name, {.parameter = index});
  model.parameters_.push_back({std::move(full), std::move(shape), options, index_, {}, {index_}});
  at(model.modules_, index_).parameters.push_back(index);
  return {index};
}

void Module::tie(std::string_view name, Parameter parameter) {
  Model& model = *model_;
  const int count = static_cast<int>(model.parameters_.size());
  FLATSHARD_EXPECTS(parameter.index >= 0 && parameter.index < count,
                    fmt::format("'{}': tied to parameter {} of a model that has {}", name,
                                parameter.index, count));
  std::string full = model.claim_name(index_, name, {.parameter = parameter.index});
  ParameterSpec& spec = at(model.parameters_, parameter.index);
  spec.aliases.push_back(std::move(full));
  insert_once(spec.users, index_);
  model.move_storage(parameter.index, model.home_of(spec.users));
}

RegisteredBuffer Module::add_buffer(std::string_view name, Shape shape, DType dtype) {
  Model& model = *model_;
  check_shape(name, shape);
  const int index = static_cast<int>(model.buffers_.size());
  std::string full = model.claim_name(index_, name, {.buffer = index});
  model.buffers_.push_back({std::move(full), std::move(shape), dtype, index_});
  return {index};
}

Module Model::module(std::string_view name, ModuleOptions options) {
  FLATSHARD_EXPECTS(name.empty() || is_dotted_name(name),
                    fmt::format("module '{}': a component of its name is empty", name));
  FLATSHARD_EXPECTS(options.uses >= 1,
                    fmt::format("module '{}': uses is {}, must be at least 1", name, options.uses));
  const auto found = module_of_name_.find(name);
  if (found == module_of_name_.end()) return {*this, make_module(name, options)};
  ModuleOptions& known = at(modules_, found->second).options;
  const bool left_out = known.uses == 0 || known == ModuleOptions{};
  FLATSHARD_EXPECTS(left_out || options == ModuleOptions{} || options == known,
                    fmt::format("module '{}': its options contradict those given before", name));
  if (left_out) known = options;
  return {*this, found->second};
}

int Model::make_module(std::string_view name, const ModuleOptions& options) {
  const int index = static_cast<int>(modules_.size());
  modules_.push_back({std::string{name}, options, {}, {}});
  module_of_name_.emplace(name, index);
  return index;
}

std::string Model::claim_name(int module, std::string_view name, Named named) {
  const std::string& outer = at(modules_, module).name;
  FLATSHARD_EXPECTS(is_dotted_name(name), fmt::format("'{}' in module '{}': the name is empty, or "
                                                      "a component of it",
                                                      name, outer));
  std::string full = full_name(outer, name);
  FLATSHARD_EXPECTS(named_.emplace(full, named).second,
                    fmt::format("'{}': the model already has something of that name", full));
  return full;
}

int Model::home_of(const std::vector<int>& users) {
  std::string name = at(modules_, users.front()).name;
  const auto contains_users = [&](const std::string& outer) {
    return std::all_of(users.begin(), users.end(),
                       [&](int user) { return contains_module(outer, at(modules_, user).name); });
  };
  while (!name.empty() && !(module_of_name_.contains(name) && contains_users(name))) {
    const std::size_t dot = name.rfind('.');
    name.resize(dot == std::string::npos ? 0 : dot);
  }
  const auto found = module_of_name_.find(name);
  return found != module_of_name_.end() ? found->second : make_module("", {.uses = 0});
}

void Model::move_storage(int parameter, int home) {
  ParameterSpec& spec = at(parameters_, parameter);
  std::erase(at(modules_, spec.module).parameters, parameter);
  spec.module = home;
  insert_once(at(modules_, home).parameters, parameter);
  for (const int user : spec.users) {
    if (user != home) insert_once(at(modules_, user).tied, parameter);
  }
}

Parameter Model::find(std::string_view name) const {
  const auto found = named_.find(name);
  if (found != named_.end() && found->second.parameter >= 0) return {found->second.parameter};
  std::vector<std::string> names;
  for (const auto& [known, named] : named_) {
    if (named.parameter >= 0) names.push_back(known);
  }
  throw UsageError(fmt::format("Model::find: no parameter '{}'; the nearest of {} names: {}", name,
                               names.size(), fmt::join(nearest_names(name, names), ", ")),
                   {__FILE__, __LINE__});
}

}  // namespace flatshard
