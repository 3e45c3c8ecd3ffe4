// Compiled once per instruction set, with FLATSHARD_INSTRUCTION_SET naming its namespace.
// Everything but the table has internal linkage or is always inlined: no symbol can be mixed up by
// a linker.
#include "block_kernels.hpp"

#include <flatshard/core/exact.hpp>
#include <flatshard/tensor/convert.hpp>

#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

// The processor's own conversions of fp16: they round to nearest even whatever the control register
// says, and keep denormals. They take whole vectors and return how many elements that was. Results
// are stored a whole vector at a time: a wider load that follows soon, as in stream_lines, would
// stall on two narrower stores (measured: half the speed).
#if defined(__AVX512F__)
// The forms with a full mask: the others warn about their own header under g++ 12.
FLATSHARD_INLINE Elements widen_half(const Half* from, float* to, Elements count) {
  const Elements whole = count / 16 * 16;
  for (Elements i = 0; i < whole; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(0xffff, halves));
  }
  return whole;
}
FLATSHARD_INLINE __m256i narrow_vector(const float* from) {
  return _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
}
FLATSHARD_INLINE Elements narrow_half(const float* from, Half* to, Elements count) {
  const Elements whole = count / 32 * 32;
  for (Elements i = 0; i < whole; i += 32)
    _mm512_storeu_si512(
        to + i, __builtin_shufflevector(narrow_vector(from + i), narrow_vector(from + i + 16), 0, 1,
                                        2, 3, 4, 5, 6, 7));
  return whole;
}
#elif defined(__F16C__)
FLATSHARD_INLINE Elements widen_half(const Half* from, float* to, Elements count) {
  const Elements whole = count / 8 * 8;
  for (Elements i = 0; i < whole; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  return whole;
}
FLATSHARD_INLINE __m128i narrow_vector(const float* from) {
  return _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
}
FLATSHARD_INLINE Elements narrow_half(const float* from, Half* to, Elements count) {
  const Elements whole = count / 16 * 16;
  for (Elements i = 0; i < whole; i += 16) {
    const __m256i low = _mm256_castsi128_si256(narrow_vector(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_inserti128_si256(low, narrow_vector(from + i + 8), 1));
  }
  return whole;
}
#else
FLATSHARD_INLINE Elements widen_half(const Half*, float*, Elements) { return 0; }
FLATSHARD_INLINE Elements narrow_half(const float*, Half*, Elements) { return 0; }
#endif

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

/// Stores one cache line past the cache.
FLATSHARD_INLINE void stream_line(const void* source, void* destination) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(destination), _mm512_loadu_si512(source));
#elif defined(__AVX__)
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

/// Converts a line at a time: it stays in registers, or nearly. (By way of a block in the level-1
/// cache the stores past the cache wait for the block's: up to half of the speed was lost.)
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

/// Sums in vectors of 32 bytes, then one by one: partial sums are read soon after they were
/// written, and a processor of the Zen 4 class hands wider stores to loads late (a reduction of 4
/// past the cache: 33 GB/s, with vectors of 64 bytes 25).
template <class Compute>
struct Sum {
  typedef Compute Vector __attribute__((vector_size(32)));
  static constexpr Elements lanes = 32 / static_cast<Elements>(sizeof(Compute));
  static Elements whole(Elements count) { return count / lanes * lanes; }
};

template <class Compute>
void add(const Compute* first, const Compute* second, Compute* sum, Elements count) {
  const Elements whole = Sum<Compute>::whole(count);
  for (Elements i = 0; i < whole; i += Sum<Compute>::lanes) {
    typename Sum<Compute>::Vector a, b;
    __builtin_memcpy(&a, first + i, sizeof a);
    __builtin_memcpy(&b, second + i, sizeof b);
    a += b;
    __builtin_memcpy(sum + i, &a, sizeof a);
  }
  for (Elements i = whole; i < count; ++i) sum[i] = exact::add(first[i], second[i]);
}

template <class Compute>
void accumulate(const Compute* addend, Compute* accumulator, Elements count) {
  add(accumulator, addend, accumulator, count);
}

template <class Compute>
void add_four(const Compute* const* terms, Compute* sum, Elements count) {
  const Elements whole = Sum<Compute>::whole(count);
  for (Elements i = 0; i < whole; i += Sum<Compute>::lanes) {
    typename Sum<Compute>::Vector a, b, c, d;
    __builtin_memcpy(&a, terms[0] + i, sizeof a);
    __builtin_memcpy(&b, terms[1] + i, sizeof b);
    __builtin_memcpy(&c, terms[2] + i, sizeof c);
    __builtin_memcpy(&d, terms[3] + i, sizeof d);
    a += b;
    c += d;
    a += c;
    __builtin_memcpy(sum + i, &a, sizeof a);
  }
  for (Elements i = whole; i < count; ++i)
    sum[i] = exact::add(exact::add(terms[0][i], terms[1][i]), exact::add(terms[2][i], terms[3][i]));
}

typedef double FourDoubles __attribute__((vector_size(4 * sizeof(double))));

FLATSHARD_INLINE void load_four(const double* x, FourDoubles& four) {
  __builtin_memcpy(&four, x, sizeof four);
}
FLATSHARD_INLINE void load_four(const float* x, FourDoubles& four) {
#if defined(__AVX__)  // g++ 12 makes four instructions of the generic form
  four = _mm256_cvtps_pd(_mm_loadu_ps(x));
#else
  four = FourDoubles{x[0], x[1], x[2], x[3]};
#endif
}

/// sums[i] = (x[4i] + x[4i+1]) + (x[4i+2] + x[4i+3]), of the elements or of their squares, for a
/// multiple of 4 sums. In vectors of 4, because a compiler by itself shuffles twice as much.
template <bool Squares, class Real>
FLATSHARD_INLINE void add_quads(const Real* x, double* sums, Elements count) {
  for (Elements i = 0; i < count; i += 4) {
    FourDoubles a, b, c, d;
    load_four(x + 4 * i, a);
    load_four(x + 4 * i + 4, b);
    load_four(x + 4 * i + 8, c);
    load_four(x + 4 * i + 12, d);
    if constexpr (Squares) a *= a, b *= b, c *= c, d *= d;
    const FourDoubles low =
        __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
    const FourDoubles high =
        __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
    const FourDoubles quads = __builtin_shufflevector(low, high, 0, 1, 4, 5) +
                              __builtin_shufflevector(low, high, 2, 3, 6, 7);
    __builtin_memcpy(sums + i, &quads, sizeof quads);
  }
}

/// A whole block; each level leaves a quarter of the sums.
template <class Real>
FLATSHARD_INLINE double block_square_sum(const Real* x) {
  static_assert(block_elements == 1 << 10);
  double first[block_elements / 4], second[block_elements / 16];
  add_quads<true>(x, first, block_elements / 4);
  add_quads<false>(first, second, block_elements / 16);
  add_quads<false>(second, first, block_elements / 64);
  add_quads<false>(first, second, block_elements / 256);
  return exact::add(exact::add(second[0], second[1]), exact::add(second[2], second[3]));
}

/// Elements narrower than fp32 by way of it: exact.
template <class Element>
double square_sum(const void* source, Elements count) {
  using Real = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  const auto* x = static_cast<const Element*>(source);
  if constexpr (std::is_same_v<Element, Real>)
    if (count == block_elements) return block_square_sum(x);
  alignas(cache_line) Real block[block_elements];
  if constexpr (std::is_same_v<Element, double>)
    to_double<double>(x, block, count);
  else
    widen_elements(x, block, count);
  for (Elements i = count; i < block_elements; ++i) block[i] = 0;
  return block_square_sum(block);
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

template <class Word, class Element>
FLATSHARD_INLINE Word word_of(Element x) {
  if constexpr (requires { x.bits; })
    return static_cast<Word>(x.bits);
  else
    return bit_cast<Word>(x);
}

/// Without their sign, floats order as their bits do, and NaN lies above everything.
template <class Element>
double absolute_maximum(const void* source, Elements count) {
  using Word = typename SignedWord<sizeof(Element)>::Type;
  constexpr auto magnitude = static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));
  const auto* x = static_cast<const Element*>(source);
  using Wide = std::conditional_t<sizeof(Word) == 8, std::int64_t, std::int32_t>;
  Wide most = 0;  // g++ 12 vectorises the maximum of these only
  for (Elements i = 0; i < count; ++i) {
    const Wide word = word_of<Word>(x[i]) & magnitude;
    most = word > most ? word : most;
  }
  return flatshard::to_double(bit_cast<Element>(static_cast<Word>(most)));
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
    {stream_to_float<double>, stream_to_float<float>, stream_to_float<Bf16>, stream_to_float<Half>,
     stream_to_float<Float8E4M3>, stream_to_float<Float8E5M2>},
    {stream_from_float<double>, stream_from_float<float>, stream_from_float<Bf16>,
     stream_from_float<Half>, stream_from_float<Float8E4M3>, stream_from_float<Float8E5M2>},
    stream_copy,
    {square_sum<double>, square_sum<float>, square_sum<Bf16>, square_sum<Half>,
     square_sum<Float8E4M3>, square_sum<Float8E5M2>},
    {absolute_maximum<double>, absolute_maximum<float>, absolute_maximum<Bf16>,
     absolute_maximum<Half>, absolute_maximum<Float8E4M3>, absolute_maximum<Float8E5M2>},
    accumulate<float>,
    accumulate<double>,
    add<float>,
    add<double>,
    add_four<float>,
    add_four<double>,
};

}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
