#include "save_layout.hpp"

#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <tuple>

namespace flatshard::detail {

namespace {

using Kind = StateTensor::Kind;
using safetensors::TensorSpec;

/// A tensor under a name and in a dtype; `of` says whose elements it holds.
struct Stored {
  StateTensor of;
  TensorSpec spec;
  DType dtype;
};

std::vector<TensorSpec> specs_of(const std::vector<Stored>& tensors) {
  std::vector<TensorSpec> specs;
  for (const Stored& tensor : tensors) specs.push_back(tensor.spec);
  return specs;
}

std::vector<std::vector<TensorSpec>> split(const std::vector<TensorSpec>& specs, Bytes max_bytes) {
  if (max_bytes == 0) return {specs};
  return safetensors::split_into_files(specs, max_bytes);
}

void add_index(SaveLayout& layout, const std::string& stem, std::size_t first) {
  safetensors::ShardIndex index;
  index.total_size = 0;
  for (std::size_t file = first; file < layout.files.size(); ++file)
    for (const safetensors::TensorEntry& entry : layout.files[file].header.tensors) {
      index.weight_map.emplace_back(entry.name, layout.files[file].name);
      *index.total_size += entry.end - entry.begin;
    }
  layout.indexes.push_back({stem + ".safetensors.index.json", safetensors::encode(index)});
}

void add_files(SaveLayout& layout, const std::string& stem, const std::vector<Stored>& tensors,
               Bytes max_bytes) {
  const std::size_t first = layout.files.size();
  const auto parts = split(specs_of(tensors), max_bytes);
  const auto count = static_cast<std::int64_t>(parts.size());
  std::map<std::string, Placement> placed;  // by name
  for (std::int64_t part = 0; part < count; ++part) {
    safetensors::Header header = plan_header(parts[static_cast<std::size_t>(part)]);
    for (std::size_t position = 0; position < header.tensors.size(); ++position) {
      const safetensors::TensorEntry& entry = header.tensors[position];
      const Placement at{static_cast<int>(layout.files.size()), static_cast<int>(position),
                         header.data_begin + entry.begin, DType::Float32};
      FLATSHARD_EXPECTS(placed.emplace(entry.name, at).second,
                        "save: two tensors would be called '" + entry.name + "'");
    }
    std::string head = encode(header);
    layout.files.push_back(
        {safetensors::shard_file_name(stem, part, count), std::move(header), std::move(head)});
  }
  for (const Stored& tensor : tensors) {
    Placement placement = placed.at(tensor.spec.name);
    placement.dtype = tensor.dtype;
    layout.placements[tensor.of].push_back(placement);
  }
  if (count > 1) add_index(layout, stem, first);
}

}  // namespace

std::string name_of_tensor(const Model& model, const StateTensor& tensor,
                           std::span<const std::string_view> state_names) {
  const auto at = static_cast<std::size_t>(tensor.index);
  if (tensor.kind == Kind::Buffer) return model.buffers()[at].name;
  const std::string& name = model.parameters()[at].name;
  if (tensor.kind == Kind::Parameter) return name;
  return name + "." + std::string(state_names[static_cast<std::size_t>(tensor.state)]);
}

std::string master_name(const std::string& parameter) { return parameter + ".master"; }

Bytes SaveLayout::bytes() const {
  Bytes sum = 0;
  for (const PlannedFile& file : files) sum += file.header.file_bytes;
  for (const Index& index : indexes) sum += static_cast<Bytes>(index.text.size());
  return sum;
}

SaveLayout plan_save(const Plan& plan, const Model& model,
                     std::span<const std::string_view> state_names, const SaveOptions& options) {
  std::vector<Stored> in_model, masters, states;
  for (const StateTensor& tensor : state_tensors(plan, model)) {
    const std::string name = name_of_tensor(model, tensor, state_names);
    const DType own = dtype_of_tensor(plan, model, tensor);
    const bool exported = tensor.kind == Kind::Parameter && options.model_dtype;
    const DType dtype = exported ? *options.model_dtype : own;
    const Shape& shape = shape_of_tensor(model, tensor);
    const auto stored = [&](const std::string& as, DType in) {
      return Stored{tensor, {as, safetensors::stored_type_of(in), shape}, in};
    };
    (tensor.kind == Kind::State ? states : in_model).push_back(stored(name, dtype));
    if (dtype != own) masters.push_back(stored(master_name(name), own));
  }
  SaveLayout layout;
  add_files(layout, model_stem, in_model, options.max_file_bytes);
  if (!options.optimizer_state) return layout;
  masters.insert(masters.end(), states.begin(), states.end());
  add_files(layout, optimizer_stem, masters, options.max_file_bytes);
  return layout;
}

std::vector<WriteJob> jobs_of(const SaveLayout& layout, const Plan& plan, const Model& model,
                              Rank rank) {
  std::vector<WriteJob> jobs;
  for (const ShardPiece& piece : pieces_to_save(plan, model, rank)) {
    const auto found = layout.placements.find(piece.tensor);
    if (found == layout.placements.end()) continue;  // a model-only save has no states
    for (const Placement& placement : found->second) jobs.push_back({piece, placement});
  }
  std::sort(jobs.begin(), jobs.end(), [](const WriteJob& a, const WriteJob& b) {
    return std::tuple(a.into.file, a.offset()) < std::tuple(b.into.file, b.offset());
  });
  return jobs;
}

}  // namespace flatshard::detail
