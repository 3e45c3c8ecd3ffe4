// Compiled once per instruction set, with FLATSHARD_INSTRUCTION_SET naming its namespace.
// Everything but the table has internal linkage or is always inlined: no symbol can be mixed up by
// a linker.
#include "block_kernels.hpp"

#include <flatshard/core/exact.hpp>
#include <flatshard/tensor/convert.hpp>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

template <class Element>
void to_float(const void* source, void* destination, Elements count) {
  const auto* __restrict from = static_cast<const Element*>(source);
  auto* __restrict to = static_cast<float*>(destination);
  for (Elements i = 0; i < count; ++i) to[i] = flatshard::to_float(from[i]);
}

template <class Element>
void from_float(const void* source, void* destination, Elements count) {
  const auto* __restrict from = static_cast<const float*>(source);
  auto* __restrict to = static_cast<Element*>(destination);
  for (Elements i = 0; i < count; ++i) to[i] = flatshard::from_float<Element>(from[i]);
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

template <class Compute>
void accumulate(const Compute* __restrict addend, Compute* __restrict accumulator, Elements count) {
  for (Elements i = 0; i < count; ++i) accumulator[i] = exact::add(accumulator[i], addend[i]);
}

template <class Compute>
void add(const Compute* __restrict first, const Compute* __restrict second, Compute* __restrict sum,
         Elements count) {
  for (Elements i = 0; i < count; ++i) sum[i] = exact::add(first[i], second[i]);
}

template <class Element>
FLATSHARD_INLINE double square(Element x) {
  const double wide = flatshard::to_double(x);
  return exact::mul(wide, wide);
}

/// sums[i] = the squares of elements 2 i and 2 i + 1, added.
template <class Element>
FLATSHARD_INLINE void square_pairs(const Element* __restrict x, double* __restrict sums,
                                   Elements pairs) {
  for (Elements i = 0; i < pairs; ++i) sums[i] = exact::add(square(x[2 * i]), square(x[2 * i + 1]));
}

FLATSHARD_INLINE void add_pairs(const double* __restrict from, double* __restrict sums,
                                Elements pairs) {
  for (Elements i = 0; i < pairs; ++i) sums[i] = exact::add(from[2 * i], from[2 * i + 1]);
}

/// A whole block, level by level: each level halves the number of sums.
template <class Element>
double block_square_sum(const Element* x) {
  alignas(cache_line) double even[block_elements / 2];
  alignas(cache_line) double odd[block_elements / 4];
  square_pairs(x, even, block_elements / 2);
  static_assert(block_elements == 1 << 10);
  add_pairs(even, odd, block_elements / 4);
  add_pairs(odd, even, block_elements / 8);
  add_pairs(even, odd, block_elements / 16);
  add_pairs(odd, even, block_elements / 32);
  add_pairs(even, odd, block_elements / 64);
  add_pairs(odd, even, block_elements / 128);
  add_pairs(even, odd, block_elements / 256);
  add_pairs(odd, even, block_elements / 512);
  return exact::add(even[0], even[1]);
}

template <class Element>
double square_sum(const void* source, Elements count) {
  const auto* x = static_cast<const Element*>(source);
  if (count == block_elements) return block_square_sum(x);
  alignas(cache_line) Element padded[block_elements];
  for (Elements i = 0; i < block_elements; ++i) padded[i] = i < count ? x[i] : Element{};
  return block_square_sum(padded);
}

template <int ElementBytes>
struct SignedWord;
template <>
struct SignedWord<1> {
  using Type = std::int8_t;
};
template <>
struct SignedWord<2> {
  using Type = std::int16_t;
};
template <>
struct SignedWord<4> {
  using Type = std::int32_t;
};
template <>
struct SignedWord<8> {
  using Type = std::int64_t;
};

/// Without their sign, floats order as their bits do, and NaN lies above everything.
template <class Element>
double absolute_maximum(const void* source, Elements count) {
  using Word = typename SignedWord<sizeof(Element)>::Type;
  constexpr auto magnitude = static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));
  const auto* x = static_cast<const Element*>(source);
  Word most = 0;
  for (Elements i = 0; i < count; ++i) {
    const auto word = static_cast<Word>(bit_cast<Word>(x[i]) & magnitude);
    most = word > most ? word : most;
  }
  return flatshard::to_double(bit_cast<Element>(most));
}

#if defined(__AVX512F__)
using Line = __m512i;
FLATSHARD_INLINE void stream_line(const Line* source, Line* destination) {
  _mm512_stream_si512(destination, _mm512_loadu_si512(source));
}
#elif defined(__AVX__)
using Line = __m256i;
FLATSHARD_INLINE void stream_line(const Line* source, Line* destination) {
  _mm256_stream_si256(destination, _mm256_loadu_si256(source));
}
#elif defined(__SSE2__)
using Line = __m128i;
FLATSHARD_INLINE void stream_line(const Line* source, Line* destination) {
  _mm_stream_si128(destination, _mm_loadu_si128(source));
}
#else
struct alignas(cache_line) Line {
  unsigned char bytes[cache_line];
};
FLATSHARD_INLINE void stream_line(const Line* source, Line* destination) {
  __builtin_memcpy(destination, source, sizeof(Line));
}
#endif

void stream_lines(const void* source, void* destination, Elements lines) {
  constexpr Elements parts = cache_line / static_cast<Bytes>(sizeof(Line));
  const auto* from = static_cast<const Line*>(source);
  auto* to = static_cast<Line*>(destination);
  for (Elements i = 0; i < lines * parts; ++i) stream_line(from + i, to + i);
}

}  // namespace

const BlockKernels block_kernels = {
    {to_float<double>, to_float<float>, to_float<Bf16>, to_float<Half>, to_float<Float8E4M3>,
     to_float<Float8E5M2>},
    {from_float<double>, from_float<float>, from_float<Bf16>, from_float<Half>,
     from_float<Float8E4M3>, from_float<Float8E5M2>},
    {to_double<double>, to_double<float>, to_double<Bf16>, to_double<Half>, to_double<Float8E4M3>,
     to_double<Float8E5M2>},
    {from_double<double>, from_double<float>, from_double<Bf16>, from_double<Half>,
     from_double<Float8E4M3>, from_double<Float8E5M2>},
    {square_sum<double>, square_sum<float>, square_sum<Bf16>, square_sum<Half>,
     square_sum<Float8E4M3>, square_sum<Float8E5M2>},
    {absolute_maximum<double>, absolute_maximum<float>, absolute_maximum<Bf16>,
     absolute_maximum<Half>, absolute_maximum<Float8E4M3>, absolute_maximum<Float8E5M2>},
    accumulate<float>,
    accumulate<double>,
    add<float>,
    add<double>,
    stream_lines,
};

}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
