// Compiled with the flags of this instruction set.
#include <immintrin.h>

#include "kernels.hpp"
#include "transpose_avx2.hpp"

namespace train_gpt {
namespace {

constexpr const char* instruction_set_name = "avx512";
constexpr std::int64_t tile_rows =
    8;  // 8 x 2 sums, 2 columns of B and a broadcast: 19 of 32 registers

template <class Real>
struct Vector;

template <>
struct Vector<float> {
  using type = __m512;
  static constexpr int lanes = 16;
  static type zero() { return _mm512_setzero_ps(); }
  static type load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, type v) { _mm512_storeu_ps(p, v); }
  static type broadcast(float x) { return _mm512_set1_ps(x); }
  static type fma(type a, type b, type c) { return _mm512_fmadd_ps(a, b, c); }
};

template <>
struct Vector<double> {
  using type = __m512d;
  static constexpr int lanes = 8;
  static type zero() { return _mm512_setzero_pd(); }
  static type load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, type v) { _mm512_storeu_pd(p, v); }
  static type broadcast(double x) { return _mm512_set1_pd(x); }
  static type fma(type a, type b, type c) { return _mm512_fmadd_pd(a, b, c); }
};

}  // namespace
}  // namespace train_gpt

#include "kernel_table.hpp"
#include "tables.hpp"

namespace train_gpt {
const Kernels<float>& avx512_float() { return table<float>; }
const Kernels<double>& avx512_double() { return table<double>; }
}  // namespace train_gpt
