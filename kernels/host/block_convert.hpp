// Conversions of blocks, with plain stores and past the cache. Part of block_kernels.cpp, compiled
// once per instruction set.
#pragma once

#include "half_vectors.hpp"

#include <flatshard/tensor/convert.hpp>

#include <type_traits>

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

template <class Element>
FLATSHARD_INLINE void widen_elements(const Element* __restrict from, float* __restrict to,
                                     Elements count) {
  Elements done = 0;
  if constexpr (std::is_same_v<Element, Half>) done = widen_half(from, to, count);
  for (Elements i = done; i < count; ++i) to[i] = flatshard::to_float(from[i]);
}

template <class Element>
FLATSHARD_INLINE void narrow_elements(const float* __restrict from, Element* __restrict to,
                                      Elements count) {
  Elements done = 0;
  if constexpr (std::is_same_v<Element, Half>) done = narrow_half(from, to, count);
  for (Elements i = done; i < count; ++i) to[i] = flatshard::from_float<Element>(from[i]);
}

template <class Element>
void to_float(const void* source, void* destination, Elements count) {
  widen_elements(static_cast<const Element*>(source), static_cast<float*>(destination), count);
}

template <class Element>
void from_float(const void* source, void* destination, Elements count) {
  narrow_elements(static_cast<const float*>(source), static_cast<Element*>(destination), count);
}

template <class Element>
void to_double(const void* source, void* destination, Elements count) {
  const auto* __restrict from = static_cast<const Element*>(source);
  auto* __restrict to = static_cast<double*>(destination);
  for (Elements i = 0; i < count; ++i) to[i] = flatshard::to_double(from[i]);
}

template <class Element>
void from_double(const void* source, void* destination, Elements count) {
  const auto* __restrict from = static_cast<const double*>(source);
  auto* __restrict to = static_cast<Element*>(destination);
  for (Elements i = 0; i < count; ++i) to[i] = flatshard::from_double<Element>(from[i]);
}

/// Stores one cache line past the cache. (In one store of 64 bytes it is no faster: a copy reached
/// 38 GB/s against 41 on a Zen 4.)
FLATSHARD_INLINE void stream_line(const void* source, void* destination) {
#if defined(__AVX__)
  for (int i = 0; i < 2; ++i)
    _mm256_stream_si256(static_cast<__m256i*>(destination) + i,
                        _mm256_loadu_si256(static_cast<const __m256i*>(source) + i));
#elif defined(__SSE2__)
  for (int i = 0; i < 4; ++i)
    _mm_stream_si128(static_cast<__m128i*>(destination) + i,
                     _mm_loadu_si128(static_cast<const __m128i*>(source) + i));
#else
  __builtin_memcpy(destination, source, cache_line);
#endif
}

void stream_copy(const void* source, void* destination, Elements lines) {
  for (Elements i = 0; i < lines; ++i)
    stream_line(static_cast<const std::byte*>(source) + i * cache_line,
                static_cast<std::byte*>(destination) + i * cache_line);
}

/// Converts a line at a time: it stays in registers, or nearly. (By way of a block of 1024 in the
/// level-1 cache, fp32 to fp16 reached 20 GB/s instead of 34.)
template <class Element>
void stream_to_float(const void* source, void* destination, Elements lines) {
  constexpr Elements per_line = cache_line / static_cast<Bytes>(sizeof(float));
  const auto* from = static_cast<const Element*>(source);
  auto* to = static_cast<std::byte*>(destination);
  for (Elements i = 0; i < lines; ++i) {
    alignas(cache_line) float line[per_line];
    widen_elements(from + i * per_line, line, per_line);
    stream_line(line, to + i * cache_line);
  }
}

template <class Element>
void stream_from_float(const void* source, void* destination, Elements lines) {
  constexpr Elements per_line = cache_line / static_cast<Bytes>(sizeof(Element));
  const auto* from = static_cast<const float*>(source);
  auto* to = static_cast<std::byte*>(destination);
  for (Elements i = 0; i < lines; ++i) {
    alignas(cache_line) Element line[per_line];
    narrow_elements(from + i * per_line, line, per_line);
    stream_line(line, to + i * cache_line);
  }
}

}  // namespace
}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
