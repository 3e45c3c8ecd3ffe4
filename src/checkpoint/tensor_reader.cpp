#include "tensor_reader.hpp"

#include <algorithm>
#include <cstring>

namespace flatshard::detail {

namespace {

/// Column `column` of the target's rows [rows.begin, rows.end) lies in one piece in the file: it is
/// put where it belongs among the elements from `first` on.
void scatter_column(std::span<const std::byte> stored, const Source& source, Range rows,
                    Elements column, Elements first, std::span<std::byte> into) {
  const Bytes size = size_of(source.dtype);
  const Elements count = static_cast<Elements>(into.size()) / size;
  for (Elements row = rows.begin; row < rows.end; ++row) {
    const Elements at = row * source.columns + column - first;
    if (at < 0 || at >= count) continue;
    std::memcpy(&into[static_cast<std::size_t>(at * size)],
                &stored[static_cast<std::size_t>((row - rows.begin) * size)],
                static_cast<std::size_t>(size));
  }
}

void read_transposed(const safetensors::TensorSet& set, const safetensors::StoredTensor& tensor,
                     const Source& source, Elements first, std::span<std::byte> into) {
  const Bytes size = size_of(source.dtype);
  const Elements count = static_cast<Elements>(into.size()) / size;
  const Range rows{first / source.columns, ceil_div(first + count, source.columns)};
  const Elements first_row = source.first / source.columns + rows.begin;
  std::vector<std::byte> stored(static_cast<std::size_t>(rows.count() * size));
  for (Elements column = 0; column < source.columns; ++column) {
    set.read(tensor, (column * source.stride + first_row) * size, stored);
    scatter_column(stored, source, rows, column, first, into);
  }
}

}  // namespace

void read_elements(const safetensors::TensorSet& set, const Source& source, Elements first,
                   std::span<std::byte> into) {
  if (into.empty()) return;
  const safetensors::StoredTensor& tensor = set.at(source.name);
  if (source.transpose)
    read_transposed(set, tensor, source, first, into);
  else
    set.read(tensor, (source.first + first) * size_of(source.dtype), into);
}

FileRange range_of(const safetensors::TensorSet& set, const Source& source, Elements first,
                   Elements count) {
  const Bytes size = size_of(source.dtype);
  return set.range(set.at(source.name), (source.first + first) * size, count * size);
}

}  // namespace flatshard::detail
