// The kernels of a CUDA device, as a table.
#pragma once

#include <flatshard/ops/kernel_table.hpp>

#include <memory>

namespace flatshard {

/// Defined in kernels/cuda. Thread-safety: one thread, that of the rank whose device it is. What
/// the table needs for itself (rings for tables, scratch) it allocates here, once, and not from the
/// device's memory(), whose high-water mark is a Plan's to the byte.
std::shared_ptr<const KernelTable> make_cuda_kernels(int ordinal);

}  // namespace flatshard
