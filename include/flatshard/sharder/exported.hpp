// Weights, gradients and optimizer states as DLPack tensors: other libraries see them where they
// lie.
#pragma once

#include <flatshard/sharder/sharder.hpp>
#include <flatshard/tensor/dlpack.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace flatshard {

/// What one rank holds of one parameter (LocalShard) as tensors of one dimension, `count` elements
/// each. Every one of them keeps alive what it was made with.
struct ExportedShard {
  Elements offset = 0;                   // of the first element, within the parameter
  Elements count = 0;                    // 0: this rank holds nothing, and the tensors are empty
  dlpack::Exported master;               // read-only: assign() and summon_full() set parameters
  dlpack::Exported gradient;             // as LocalShard::gradient; frozen: null
  std::vector<dlpack::Exported> states;  // one per name of the optimizer's states; frozen: none
};

/// `keeps_alive` must keep the engine. Call synchronize() before others look, and let none write
/// while a step runs.
ExportedShard export_local(const Engine& engine, int parameter,
                           const std::shared_ptr<const void>& keeps_alive);

/// Of a Sharder, which lives until the last of the tensors has been given back.
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
ExportedShard export_local(const std::shared_ptr<Sharder<Strategy, Precision, Offload>>& trainer,
                           Parameter parameter) {
  return export_local(trainer->engine(), parameter.index, trainer);
}

/// A parameter of the module, whole, in its compute dtype and shape, read-only. The module stays
/// gathered, and the Sharder alive, until the tensor is given back, which the rank's own thread
/// must do; until then parameters cannot change (step() and assign() throw). Collective, as
/// Sharder::gather; blocks the host until the values are there. (What forward and backward
/// functions see can be exported by dlpack::memory_of(weights[p], ...), for as long as they run.)
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
dlpack::Exported export_weights(
    const std::shared_ptr<Sharder<Strategy, Precision, Offload>>& trainer, const Module& module,
    Parameter parameter) {
  using Held = std::pair<std::shared_ptr<Sharder<Strategy, Precision, Offload>>,
                         Gathered<typename Precision::compute>>;
  auto held = std::make_shared<Held>(trainer, trainer->gather(module));
  Engine& engine = trainer->engine();
  engine.compute_stream().synchronize();
  const std::byte* data = engine.weights(parameter.index, module.index());
  return dlpack::export_memory(
      {data, engine.compute_dtype(parameter.index), engine.parameter_spec(parameter.index).shape,
       dlpack::device_of(engine.device()), false},
      std::move(held));
}

}  // namespace flatshard
