// The KernelTable of host devices: cuts calls over threads and blocks, and runs the loops of one
// instruction set on them.
#pragma once

#include "block_kernels.hpp"
#include "thread_team.hpp"

#include <flatshard/ops/kernel_table.hpp>

#include <utility>
#include <vector>

namespace flatshard::host {

class HostKernels final : public KernelTable {
 public:
  /// Results of more than `stream_above` bytes, out of place, are written past the cache. `cores`:
  /// see ThreadTeam.
  HostKernels(int threads, std::vector<int> cores, const BlockKernels& kernels, Bytes stream_above)
      : kernels_(&kernels), stream_above_(stream_above), team_(threads, std::move(cores)) {}

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

 private:
  void move(const void* source, DType from, void* destination, DType to, Elements count) const;
  void reduce_now(std::span<const void* const> sources, DType contribution, void* destination,
                  DType result, Elements count) const;

  const BlockKernels* kernels_;
  Bytes stream_above_;
  mutable ThreadTeam team_;
};

}  // namespace flatshard::host
