// Where parameters, gradients and buffers lie; handles of another model are refused.
#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "engine_parts.hpp"

namespace flatshard {

const ParameterSpec& Engine::parameter_spec(int parameter) const {
  const std::vector<ParameterSpec>& parameters = parts_->model.parameters();
  FLATSHARD_EXPECTS(
      parameter >= 0 && parameter < static_cast<int>(parameters.size()),
      fmt::format("parameter {} is not of this model, which has {}", parameter, parameters.size()));
  return parameters[static_cast<std::size_t>(parameter)];
}

const BufferSpec& Engine::buffer_spec(int buffer) const {
  const std::vector<BufferSpec>& buffers = parts_->model.buffers();
  FLATSHARD_EXPECTS(
      buffer >= 0 && buffer < static_cast<int>(buffers.size()),
      fmt::format("buffer {} is not of this model, which has {}", buffer, buffers.size()));
  return buffers[static_cast<std::size_t>(buffer)];
}

const std::vector<int>& Engine::Parts::touched(int module) const {
  const auto& calls = runtime.plan.units_of_call;
  FLATSHARD_EXPECTS(
      module >= 0 && module < static_cast<int>(calls.size()),
      fmt::format("module {} is not of this model, which has {}", module, calls.size()));
  return calls[static_cast<std::size_t>(module)];
}

const Flat& Engine::Parts::flat_of(int parameter) const {
  return runtime.flat(runtime.plan.flat_of_parameter[static_cast<std::size_t>(parameter)]);
}

DType Engine::compute_dtype(int parameter) const { return parts_->flat_of(parameter).compute; }
DType Engine::master_dtype(int parameter) const { return parts_->flat_of(parameter).master; }
Engine::Parts::Place Engine::Parts::place_of(int parameter, int module) const {
  const Flat& flat = flat_of(parameter);
  const std::vector<int>& units = touched(module);
  const int slot = runtime.plan.slot_of_parameter[static_cast<std::size_t>(parameter)];
  return {runtime.plan.flat_of_parameter[static_cast<std::size_t>(parameter)],
          std::find(units.begin(), units.end(), flat.unit) != units.end(),
          flat.layout.start(slot) * size_of(flat.compute)};
}

std::byte* Engine::weights(int parameter, int module) const {
  const ParameterSpec& spec = parameter_spec(parameter);
  const Parts::Place place = parts_->place_of(parameter, module);
  std::byte* whole = parts_->gatherer.whole(place.flat);
  FLATSHARD_EXPECTS(
      whole != nullptr && place.called,
      fmt::format("parameter '{}' is not whole in a call of module '{}': it belongs to unit '{}'",
                  spec.name, parts_->model.modules()[static_cast<std::size_t>(module)].name,
                  parts_->runtime.unit(parts_->runtime.flat(place.flat).unit).name));
  return whole + place.offset;
}

std::byte* Engine::gradient(int parameter, int module) const {
  const ParameterSpec& spec = parameter_spec(parameter);
  const Parts::Place place = parts_->place_of(parameter, module);
  std::byte* gradient = parts_->reducer.gradient(place.flat);
  FLATSHARD_EXPECTS(
      gradient != nullptr && place.called,
      fmt::format("parameter '{}' has no gradient in a backward call of module '{}'{}", spec.name,
                  parts_->model.modules()[static_cast<std::size_t>(module)].name,
                  parts_->runtime.flat(place.flat).requires_grad ? "" : ": it is frozen"));
  return gradient + place.offset;
}

std::byte* Engine::buffer(int buffer) const {
  return parts_->runtime.address(Role::RegisteredData, buffer);
}

}  // namespace flatshard
