#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/sharder/engine.hpp>
#include <flatshard/sharder/shard_map.hpp>

#include <algorithm>

namespace flatshard {

namespace {

using Kind = StateTensor::Kind;

const Flat& flat_of(const Plan& plan, int parameter) {
  const int flat = plan.flat_of_parameter[static_cast<std::size_t>(parameter)];
  return plan.flats[static_cast<std::size_t>(flat)];
}

int states_of(const Plan& plan, const Flat& flat) {
  return flat.requires_grad ? plan.request.optimizer_states : 0;
}

/// Part `index` of `parts` almost equal parts of [0, count).
Range part_of(Elements count, int parts, int index) {
  const Elements share = count / parts, longer = count % parts;
  const auto start = [&](Elements i) { return i * share + std::min(i, longer); };
  return {start(index), start(index + 1)};
}

/// Appends the fragment's part that lies in `kept` (of the slice), once per tensor.
void append(std::vector<ShardPiece>& pieces, const Plan& plan, int flat_index,
            const Fragment& fragment, Range kept) {
  const Flat& flat = plan.flats[static_cast<std::size_t>(flat_index)];
  const Elements begin = std::max(fragment.slice_offset, kept.begin);
  const Elements end = std::min(fragment.slice_offset + fragment.count, kept.end);
  if (begin >= end) return;
  const int parameter = flat.parameters[static_cast<std::size_t>(fragment.parameter)];
  ShardPiece piece{{Kind::Parameter, parameter, 0},
                   fragment.parameter_offset + begin - fragment.slice_offset,
                   end - begin,
                   flat.master,
                   flat_index,
                   begin,
                   false};
  pieces.push_back(piece);
  piece.dtype = flat.state;
  for (int state = 0; state < states_of(plan, flat); ++state) {
    piece.tensor = {Kind::State, parameter, state};
    pieces.push_back(piece);
  }
}

void append_whole(std::vector<ShardPiece>& pieces, const Plan& plan, int flat_index) {
  const Flat& flat = plan.flats[static_cast<std::size_t>(flat_index)];
  for (int slot = 0; slot < flat.layout.parameters(); ++slot)
    if (flat.layout.numel(slot) > 0)
      pieces.push_back({{Kind::Parameter, flat.parameters[static_cast<std::size_t>(slot)], 0},
                        0,
                        flat.layout.numel(slot),
                        flat.master,
                        flat_index,
                        flat.layout.start(slot),
                        true});
}

void append_buffers(std::vector<ShardPiece>& pieces, const Model& model) {
  for (int index = 0; index < static_cast<int>(model.buffers().size()); ++index) {
    const BufferSpec& buffer = model.buffers()[static_cast<std::size_t>(index)];
    if (buffer.numel() > 0)
      pieces.push_back({{Kind::Buffer, index, 0}, 0, buffer.numel(), buffer.dtype, -1, 0, false});
  }
}

}  // namespace

std::vector<StateTensor> state_tensors(const Plan& plan, const Model& model) {
  std::vector<StateTensor> tensors;
  const int parameters = static_cast<int>(model.parameters().size());
  for (int index = 0; index < parameters; ++index) tensors.push_back({Kind::Parameter, index, 0});
  for (int index = 0; index < static_cast<int>(model.buffers().size()); ++index)
    tensors.push_back({Kind::Buffer, index, 0});
  for (int index = 0; index < parameters; ++index)
    for (int state = 0; state < states_of(plan, flat_of(plan, index)); ++state)
      tensors.push_back({Kind::State, index, state});
  return tensors;
}

std::vector<ShardPiece> pieces_to_save(const Plan& plan, const Model& model, Rank rank) {
  std::vector<ShardPiece> pieces;
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index) {
    const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
    const Range mine = part_of(flat.partition.slice(), plan.replicas, rank / plan.shard_group);
    for (const Fragment& part : fragments(flat.layout, flat.partition, rank % plan.shard_group))
      append(pieces, plan, index, part, mine);
  }
  if (rank == 0) append_buffers(pieces, model);
  return pieces;
}

std::vector<ShardPiece> pieces_to_load(const Plan& plan, const Model& model, Rank rank) {
  std::vector<ShardPiece> pieces;
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index) {
    const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
    if (!flat.requires_grad && flat.rests_whole) {
      append_whole(pieces, plan, index);
      continue;
    }
    for (const Fragment& part : fragments(flat.layout, flat.partition, rank % plan.shard_group))
      append(pieces, plan, index, part, {0, flat.partition.slice()});
  }
  append_buffers(pieces, model);
  return pieces;
}

DType dtype_of_tensor(const Plan& plan, const Model& model, const StateTensor& tensor) {
  if (tensor.kind == Kind::Buffer)
    return model.buffers()[static_cast<std::size_t>(tensor.index)].dtype;
  const Flat& flat = flat_of(plan, tensor.index);
  return tensor.kind == Kind::State ? flat.state : flat.master;
}

const Shape& shape_of_tensor(const Model& model, const StateTensor& tensor) {
  const auto at = static_cast<std::size_t>(tensor.index);
  return tensor.kind == Kind::Buffer ? model.buffers()[at].shape : model.parameters()[at].shape;
}

std::vector<std::int64_t> flat_times(const Plan& plan, const Model& model,
                                     const std::function<std::int64_t(int parameter)>& time_of) {
  const auto name = [&](int parameter) {
    return model.parameters()[static_cast<std::size_t>(parameter)].name;
  };
  std::vector<std::int64_t> times;
  for (const Flat& flat : plan.flats) {
    const bool counts = flat.requires_grad && !flat.parameters.empty();
    times.push_back(counts ? time_of(flat.parameters.front()) : 0);
    for (const int parameter : counts ? flat.parameters : std::vector<int>{})
      FLATSHARD_EXPECTS(
          time_of(parameter) == times.back(),
          fmt::format("'{}' was updated {} times and '{}' {} times, but unit '{}' counts both "
                      "together: wrap them apart, or set ParameterOptions::time_group",
                      name(flat.parameters.front()), times.back(), name(parameter),
                      time_of(parameter), flat.label));
  }
  return times;
}

std::byte* address_of(const Engine& engine, const ShardPiece& piece) {
  const Bytes offset = piece.offset * size_of(piece.dtype);
  if (piece.tensor.kind == StateTensor::Kind::Buffer)
    return engine.buffer(piece.tensor.index) + offset;
  const FlatState flat = engine.flat_state(piece.flat);
  if (piece.in_whole) return flat.whole + offset;
  if (piece.tensor.kind == StateTensor::Kind::Parameter) return flat.master + offset;
  return flat.states[static_cast<std::size_t>(piece.tensor.state)] + offset;
}

}  // namespace flatshard
