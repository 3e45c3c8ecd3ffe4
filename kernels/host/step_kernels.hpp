// The steps of the library's own optimizers, compiled once per instruction set
// (step_kernels.cpp) like the block kernels.
#pragma once

#include <flatshard/ops/optimizer.hpp>

namespace flatshard::host {

/// nullptr: the row is not in StepRows.
struct StepKernels {
  HostStep (*adamw)(const StepRow& row);
  HostStep (*sgd)(const StepRow& row);
  HostStep (*lion)(const StepRow& row);
  HostStep (*adagrad)(const StepRow& row);
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
