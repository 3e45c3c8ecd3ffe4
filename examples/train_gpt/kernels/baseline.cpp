#include "kernels.hpp"

namespace train_gpt {
namespace {

constexpr const char* instruction_set_name = "baseline";
constexpr std::int64_t tile_rows = 2;

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// One number: without an instruction for it, the C library computes the fused multiply-add.
template <class Real>
struct Vector {
  using type = Real;
  static constexpr int lanes = 1;
  static type zero() { return Real(0); }
  static type load(const Real* p) { return *p; }
  static void store(Real* p, type v) { *p = v; }
  static type broadcast(Real x) { return x; }
  static type fma(type a, type b, type c) { return fused(a, b, c); }
};

template <class Real>
void transpose_4x4(Real* out, std::int64_t out_row, const Real* in, std::int64_t in_row) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) out[i * out_row + j] = in[j * in_row + i];
}

}  // namespace
}  // namespace train_gpt

#include "kernel_table.hpp"
#include "tables.hpp"

namespace train_gpt {
const Kernels<float>& baseline_float() { return table<float>; }
const Kernels<double>& baseline_double() { return table<double>; }
}  // namespace train_gpt
