#pragma once
// out[i][j] = in[j][i] for 4 x 4 numbers; local to the file that includes it, which has AVX2.

#include <immintrin.h>

#include <cstdint>

namespace train_gpt {
namespace {

inline void transpose_4x4(float* out, std::int64_t out_row, const float* in, std::int64_t in_row) {
  const __m128 a = _mm_loadu_ps(in), b = _mm_loadu_ps(in + in_row);
  const __m128 c = _mm_loadu_ps(in + 2 * in_row), d = _mm_loadu_ps(in + 3 * in_row);
  const __m128 ab_low = _mm_unpacklo_ps(a, b), ab_high = _mm_unpackhi_ps(a, b);
  const __m128 cd_low = _mm_unpacklo_ps(c, d), cd_high = _mm_unpackhi_ps(c, d);
  _mm_storeu_ps(out, _mm_movelh_ps(ab_low, cd_low));
  _mm_storeu_ps(out + out_row, _mm_movehl_ps(cd_low, ab_low));
  _mm_storeu_ps(out + 2 * out_row, _mm_movelh_ps(ab_high, cd_high));
  _mm_storeu_ps(out + 3 * out_row, _mm_movehl_ps(cd_high, ab_high));
}

inline void transpose_4x4(double* out, std::int64_t out_row, const double* in,
                          std::int64_t in_row) {
  const __m256d a = _mm256_loadu_pd(in), b = _mm256_loadu_pd(in + in_row);
  const __m256d c = _mm256_loadu_pd(in + 2 * in_row), d = _mm256_loadu_pd(in + 3 * in_row);
  const __m256d ab_even = _mm256_unpacklo_pd(a, b), ab_odd = _mm256_unpackhi_pd(a, b);
  const __m256d cd_even = _mm256_unpacklo_pd(c, d), cd_odd = _mm256_unpackhi_pd(c, d);
  _mm256_storeu_pd(out, _mm256_permute2f128_pd(ab_even, cd_even, 0x20));
  _mm256_storeu_pd(out + out_row, _mm256_permute2f128_pd(ab_odd, cd_odd, 0x20));
  _mm256_storeu_pd(out + 2 * out_row, _mm256_permute2f128_pd(ab_even, cd_even, 0x31));
  _mm256_storeu_pd(out + 3 * out_row, _mm256_permute2f128_pd(ab_odd, cd_odd, 0x31));
}

}  // namespace
}  // namespace train_gpt
