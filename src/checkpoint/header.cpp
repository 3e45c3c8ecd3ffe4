#include <flatshard/checkpoint/safetensors.hpp>

#include "header_parts.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace flatshard::safetensors {

std::int64_t elements_of(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::size_t> positions_by_name(const std::vector<TensorEntry>& tensors) {
  std::vector<std::size_t> positions(tensors.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  std::sort(positions.begin(), positions.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  return positions;
}

// Zeros are left out of the product at first: whether it overflows must not depend on their places.
std::optional<std::int64_t> bits_of(StoredType type, std::span<const std::int64_t> shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    empty |= dimension == 0;
    const std::int64_t factor = dimension == 0 ? 1 : dimension;
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  if (empty) return 0;
  if (__builtin_mul_overflow(product, info(type).bits, &product)) return std::nullopt;
  return product;
}

const TensorEntry* Header::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name.begin(), by_name.end(), name,
                                      [this](std::size_t position, std::string_view wanted) {
                                        return tensors[position].name < wanted;
                                      });
  if (found == by_name.end() || tensors[*found].name != name) return nullptr;
  return &tensors[*found];
}

}  // namespace flatshard::safetensors
