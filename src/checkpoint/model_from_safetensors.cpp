#include <fmt/format.h>
#include <flatshard/checkpoint/load.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/core/error.hpp>

namespace flatshard {

namespace {

std::string up_to_last_dot(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// The name within its module; throws UsageError when it does not lie there.
std::string name_within(const std::string& module, const std::string& name) {
  if (module.empty()) return name;
  FLATSHARD_EXPECTS(name.starts_with(module + "."),
                    fmt::format("tensor '{}' cannot be of module '{}'", name, module));
  return name.substr(module.size() + 1);
}

}  // namespace

Model model_from_safetensors(const std::string& path, const ModelOptions& options) {
  const auto set = safetensors::TensorSet::open(
      path, {}, safetensors::Mode::Compatible,
      options.operations == nullptr ? posix_file_operations() : *options.operations);
  Model model;
  for (const auto& [name, tensor] : set.tensors()) {
    const std::optional<DType> dtype = info(tensor.entry->type).dtype;
    FLATSHARD_EXPECTS(dtype, fmt::format("tensor '{}' is {}, which no model can hold", name,
                                         name_of(tensor.entry->type)));
    const std::string place = options.module_of ? options.module_of(name) : up_to_last_dot(name);
    Module module = model.module(place);
    const std::string own = name_within(place, name);
    if (is_floating(*dtype))
      module.add(own, tensor.entry->shape,
                 options.parameter_options ? options.parameter_options(name) : ParameterOptions{});
    else
      module.add_buffer(own, tensor.entry->shape, *dtype);
  }
  return model;
}

}  // namespace flatshard
