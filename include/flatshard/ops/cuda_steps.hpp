// Where an Optimizer finds the CUDA step of its functor: host code cannot instantiate one, so the
// .cu file that does (kernels/cuda for the library's optimizers, the user's own for others; see
// <flatshard/cuda/step.cuh>) enters it here.
#pragma once

#include <flatshard/ops/step.hpp>

#include <typeinfo>

namespace flatshard {

/// The step of a row, or nullptr when it is not built.
using CudaStepFinder = CudaStep (*)(const StepRow& row);

/// Enters the finder of a functor's type; the last one entered counts. Thread-safe.
void register_cuda_step(const std::type_info& functor, CudaStepFinder finder);
/// nullptr when no finder is registered for the functor's type, or it has no such row. Thread-safe.
CudaStep registered_cuda_step(const std::type_info& functor, const StepRow& row);

}  // namespace flatshard
