// fp16 and fp32 in whole vectors, where the instruction set has conversions. Part of
// block_kernels.cpp, compiled once per instruction set.
#pragma once

#include "block_kernels.hpp"

#include <flatshard/config.hpp>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

// The processor's own conversions of fp16: they round to nearest even whatever the control register
// says, and keep denormals. They take whole vectors and return how many elements that was. Results
// are stored in full vectors: a wide load that follows at once, as in stream_line, would wait for
// two narrower stores.
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

}  // namespace
}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
