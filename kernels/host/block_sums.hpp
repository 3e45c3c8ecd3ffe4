// Sums of blocks, sums of their squares and largest magnitudes. Part of block_kernels.cpp, compiled
// once per instruction set.
#pragma once

#include "block_convert.hpp"

#include <flatshard/core/exact.hpp>

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

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
}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
