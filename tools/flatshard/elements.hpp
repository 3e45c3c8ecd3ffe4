// Elements of stored tensors as numbers.
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard_tool {

/// What comparing two runs of elements found; adds up over runs.
struct Differences {
  std::int64_t differing = 0;     // elements whose values differ; NaN equals NaN, -0 equals 0
  std::int64_t incomparable = 0;  // of these: NaN on one side only
  double absolute = 0;            // the largest |a - b|
  double relative = 0;            // the largest |a - b| / max(|a|, |b|)
};

/// Adds what differs between runs of equally many elements of these dtypes. Infinities of one sign
/// are equal; any other difference from an infinity is infinite.
void compare(flatshard::DType dtype_a, std::span<const std::byte> a, flatshard::DType dtype_b,
             std::span<const std::byte> b, Differences& differences);

/// Converts floating-point elements, each rounded once to nearest even. Returns how many finite
/// ones became infinite or NaN. `to` has room for as many elements as `from` has.
std::int64_t convert(flatshard::DType dtype_from, std::span<const std::byte> from,
                     flatshard::DType dtype_to, std::span<std::byte> to);

}  // namespace flatshard_tool
