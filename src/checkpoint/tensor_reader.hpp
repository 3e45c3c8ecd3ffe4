// Elements of a target tensor, read from where they are stored.
#pragma once

#include <flatshard/io/read_ahead.hpp>

#include <span>
#include <vector>

#include "load_plan.hpp"

namespace flatshard::detail {

/// Elements [first, first + count) of the target that comes from `source`, row-major, in the stored
/// dtype, with into.size() == count * size of that dtype. Throws IoError.
void read_elements(const safetensors::TensorSet& set, const Source& source, Elements first,
                   std::span<std::byte> into);

/// Where the same lie, of a source that is not transposed.
FileRange range_of(const safetensors::TensorSet& set, const Source& source, Elements first,
                   Elements count);

}  // namespace flatshard::detail
