// Sums of squares and largest magnitudes of the nodes of the norm's tree.
#pragma once

#include "block_kernels.hpp"
#include "thread_team.hpp"

#include <flatshard/ops/kernel_table.hpp>

#include <span>

namespace flatshard::host {

/// One call of square_sums or absolute_maxima: value of node k to values[k].
struct NodeValues {
  const BlockKernels* kernels;
  const void* buffer;
  DType dtype;
  std::span<const NormNode> nodes;
  double* values;

  void square_sums(ThreadTeam& team) const;
  void absolute_maxima(ThreadTeam& team) const;
};

}  // namespace flatshard::host
