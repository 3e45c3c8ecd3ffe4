// The steps of the library's own optimizers, compiled once per instruction set
// (step_kernels.cpp) like the block kernels.
#pragma once

#include <flatshard/ops/optimizer.hpp>

namespace flatshard::host {

/// nullptr: the row is not in StepRows.
using FindStep = HostStep (*)(const StepRow& row);

struct StepKernels {
  FindStep find[detail::length_of(BuiltinOptimizers{})];  // in the order of BuiltinOptimizers
};

namespace baseline {
extern const StepKernels step_kernels;
}
namespace avx2 {
extern const StepKernels step_kernels;
}
namespace avx512 {
extern const StepKernels step_kernels;
}

}  // namespace flatshard::host
