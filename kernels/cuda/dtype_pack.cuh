// Packs of a dtype that is known at run time only: for kernels whose time is the memory's, whatever
// a uniform branch costs.
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include "pack.cuh"

namespace flatshard::cuda {

/// Calls function(Element{}) for the element type of a floating dtype.
template <class Function>
FLATSHARD_INLINE __device__ void with_element(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::Float64:
      return function(double{});
    case DType::Float32:
      return function(float{});
    case DType::BFloat16:
      return function(Bf16{});
    case DType::Float16:
      return function(Half{});
    case DType::Float8E4M3:
      return function(Float8E4M3{});
    default:
      return function(Float8E5M2{});
  }
}

/// Elements of any dtype as Compute: converted once (from double to float: rounded).
template <int Count, class Compute>
FLATSHARD_INLINE __device__ void load_as(DType dtype, const void* from, Elements index,
                                         Elements count, Compute (&values)[Count]) {
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    constexpr int part = Count * sizeof(Element) <= 16 ? Count : 16 / int{sizeof(Element)};
    const auto* elements = static_cast<const Element*>(from);
    const auto place = reinterpret_cast<std::uintptr_t>(elements + index);
    const bool whole = is_whole<Count>(index, count) && place % (part * sizeof(Element)) == 0;
#pragma unroll
    for (int begin = 0; begin < Count; begin += part) {
      const auto pack = whole ? load_pack<part>(elements, index + begin)
                              : gather_pack<part>(elements, index + begin, count);
      const auto converted = convert_pack<Compute>(pack.at);
#pragma unroll
      for (int i = 0; i < part; ++i) values[begin + i] = converted.at[i];
    }
  });
}

template <int Count, class Compute>
FLATSHARD_INLINE __device__ void store_as(DType dtype, const Compute (&values)[Count], void* to,
                                          Elements index, Elements count) {
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    constexpr int part = Count * sizeof(Element) <= 16 ? Count : 16 / int{sizeof(Element)};
    auto* elements = static_cast<Element*>(to);
    const auto place = reinterpret_cast<std::uintptr_t>(elements + index);
    const bool whole = is_whole<Count>(index, count) && place % (part * sizeof(Element)) == 0;
#pragma unroll
    for (int begin = 0; begin < Count; begin += part) {
      Compute values_of_part[part];
#pragma unroll
      for (int i = 0; i < part; ++i) values_of_part[i] = values[begin + i];
      const auto pack = convert_pack<Element>(values_of_part);
      if (whole)
        store_pack(pack, elements, index + begin);
      else
        scatter_pack(pack, elements, index + begin, count);
    }
  });
}

}  // namespace flatshard::cuda
