// Which elements of which tensor lie where on which rank: a host-only algebra over a Plan, from
// which saving, loading and carrying over all follow.
#pragma once

#include <flatshard/layout/model.hpp>
#include <flatshard/sharder/plan.hpp>
#include <flatshard/sharder/training_state.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace flatshard {

class Engine;

/// One of the tensors that are a model's state: a parameter (its master; frozen: its compute
/// values), one optimizer state of a parameter, or a registered buffer.
struct StateTensor {
  /// What a tensor is to the model.
  enum class Kind : std::uint8_t { Parameter, State, Buffer };
  Kind kind = Kind::Parameter;  // which
  int index = 0;                // of the parameter or buffer, in the model
  int state = 0;                // which of the optimizer's states
  friend auto operator<=>(const StateTensor&, const StateTensor&) = default;
};

/// A run of elements of one tensor, contiguous in the tensor (row-major) and in memory.
struct ShardPiece {
  StateTensor tensor;            // of which it is a part
  Elements first = 0;            // within the tensor
  Elements count = 0;            // > 0
  DType dtype = DType::Float32;  // in memory
  // Where: element `offset` of FlatState::master, ::states[tensor.state] or (`in_whole`) ::whole of
  // the flat; for a buffer, of its data.
  int flat = -1;          // of Plan::flats; -1: a buffer
  Elements offset = 0;    // of its first element, there
  bool in_whole = false;  // in FlatState::whole
  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

/// All tensors of a model's state: parameters in model order, then buffers, then the states of each
/// trainable parameter. Tied names are one parameter.
std::vector<StateTensor> state_tensors(const Plan& plan, const Model& model);

/// What `rank` has to save. Over all ranks, every element of every tensor is in exactly one piece:
/// of ranks that hold the same elements each has a part; rank 0 has the buffers.
std::vector<ShardPiece> pieces_to_save(const Plan& plan, const Model& model, Rank rank);

/// What `rank` must be given so that its state is complete: all elements that it holds.
std::vector<ShardPiece> pieces_to_load(const Plan& plan, const Model& model, Rank rank);

/// The dtype of a tensor in memory.
DType dtype_of_tensor(const Plan& plan, const Model& model, const StateTensor& tensor);
/// Its shape, in the tensor's own dimensions.
const Shape& shape_of_tensor(const Model& model, const StateTensor& tensor);

/// Per flat the number of updates of its parameters, which `time_of` gives by their index; 0 for a
/// frozen flat. Throws UsageError when parameters that one flat counts together do not agree.
std::vector<std::int64_t> flat_times(const Plan& plan, const Model& model,
                                     const std::function<std::int64_t(int parameter)>& time_of);

/// Where a piece of the engine's own lies on this rank, in device memory.
std::byte* address_of(const Engine& engine, const ShardPiece& piece);

}  // namespace flatshard
