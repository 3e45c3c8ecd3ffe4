// The KernelTable of a CUDA device: checks arguments, lays out tables and scratch, launches.
#pragma once

#include <flatshard/ops/kernel_table.hpp>

#include <vector>

#include "add_levels.hpp"
#include "launchers.hpp"
#include "scratch.hpp"

namespace flatshard::cuda {

/// Thread-safety: one thread, that of the rank whose device it is.
class CudaKernels final : public KernelTable {
 public:
  explicit CudaKernels(int ordinal) : ordinal_(ordinal), scratch_(ordinal) {}

  void zero(void* destination, Bytes bytes, StreamRef stream) const override;
  void cast(const void* source, DType from, void* destination, DType to, Elements count,
            StreamRef stream) const override;
  void add(const void* addend, DType addend_dtype, void* accumulator, DType accumulator_dtype,
           Elements count, StreamRef stream) const override;
  void reduce(std::span<const void* const> sources, DType contribution, void* destination,
              DType result, Elements count, StreamRef stream) const override;
  void square_sums(const void* buffer, DType dtype, std::span<const NormNode> nodes, double* values,
                   StreamRef stream) const override;
  void absolute_maxima(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                       double* values, StreamRef stream) const override;
  void add_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const override;
  void max_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const override;
  void fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical,
            Elements count, StreamRef stream) const override;
  void start_control(StepControl& control, const LossScaler& scaler,
                     StreamRef stream) const override;
  void conclude(const ConcludeArguments& arguments, StreamRef stream) const override;
  void flatten(std::span<const FlattenPiece> pieces, DType from, void* flat, DType to,
               StreamRef stream) const override;
  void unflatten(std::span<const FlattenPiece> pieces, const void* flat, DType from, DType to,
                 StreamRef stream) const override;
  void step(const StepFunctions& functions, const StepArguments& arguments,
            StreamRef stream) const override;
  void step_ranges(const StepFunctions& functions, std::span<const StepArguments> ranges,
                   StreamRef stream) const override;

 private:
  template <class Launch>
  void issue(const char* call, StreamRef stream, const Launch& launch) const;
  void cast_pageable(const void* source, DType from, void* destination, DType to, Elements count,
                     StreamRef stream) const;
  void copy_pieces(DType from, DType to, cudaStream_t stream) const;
  void measure(NormForm form, const void* buffer, DType dtype, std::span<const NormNode> nodes,
               double* values, StreamRef stream) const;
  void merge(NormForm form, std::span<const NormAdd> adds, double* values, StreamRef stream) const;

  int ordinal_;
  mutable Scratch scratch_;
  // Tables on their way to the device; kept so that steady steps allocate nothing.
  mutable std::vector<CopyPiece> pieces_;
  mutable std::vector<NormEntry> nodes_;
  mutable AddLevels levels_;
};

}  // namespace flatshard::cuda
