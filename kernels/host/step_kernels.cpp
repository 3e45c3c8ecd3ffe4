// Compiled once per instruction set, see block_kernels.cpp.
#include "step_kernels.hpp"

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

struct ThisInstructionSet;  // local to this object, and so is every template made with it

template <class Functor>
HostStep step_of(const StepRow& row) {
  return find_host_step<ThisInstructionSet, Functor>(row);
}

}  // namespace

const StepKernels step_kernels = {step_of<AdamW>, step_of<SGD>, step_of<Lion>, step_of<Adagrad>};

}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
