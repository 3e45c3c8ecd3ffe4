// In place of the kernels of steps: the host's, as work of the stream.
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/cuda_steps.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include <cstring>

#include "../../kernels/cuda/builtin_steps.hpp"
#include "launchers.hpp"

namespace flatshard::cuda {
namespace {

using emulated::Array;

template <class... Types>
bool is_built(const StepRow& row, StepRowList<Types...>) {
  return ((Types::row() == row) || ...);
}

template <class Functor>
void step_now(const StepArguments& range) {
  emulated::touch_elements(range.master, range.row.master, range.count);
  emulated::touch_elements(range.gradient, range.row.gradient, range.count);
  for (std::size_t k = 0; k < state_count<Functor>; ++k)
    emulated::touch_elements(range.states[k], range.row.state, range.count);
  if (range.row.writes_copy) emulated::touch_elements(range.copy, range.row.copy, range.count);
  emulated::touch(range.scalars, sizeof(StepScalars));
  emulated::touch(range.time, sizeof(std::int64_t));
  builtin_host_step<Functor>(range.row)(range);
}

template <class Functor>
void launch_step(std::span<const StepArguments> ranges, void* scratch, void* stream) {
  emulated::launch(
      static_cast<cudaStream_t>(stream),
      emulated::Work([scratch, taken = Array<StepArguments>(ranges.begin(), ranges.end())] {
        emulated::spoil(scratch, cuda_step_scratch(taken));
        for (const StepArguments& range : taken) step_now<Functor>(range);
      }));
}

template <class Functor>
CudaStep find_step(const StepRow& row) {
  return is_built(row, StepRows{}) ? launch_step<Functor> : nullptr;
}

template <class... Functors>
void register_steps() {
  (register_cuda_step(typeid(Functors), find_step<Functors>), ...);
}

}  // namespace

void register_adamw() { register_steps<AdamW>(); }
void register_sgd() { register_steps<SGD>(); }
void register_lion() { register_steps<Lion>(); }
void register_adagrad() { register_steps<Adagrad>(); }
void register_moments() { register_steps<Adam, AMSGrad, NAdam>(); }
void register_rmsprop() {
  register_steps<RMSProp, RMSPropMomentum, CenteredRMSProp, CenteredRMSPropMomentum>();
}

}  // namespace flatshard::cuda
