#pragma once
// Element-wise work and row sums of one instruction set; local to the file that includes it.
// Plain multiplications and additions (compiled with -ffp-contract=off) that the compiler turns
// into vectors: each is rounded once, so their width changes no bit.

#include "kernels.hpp"

namespace train_gpt {
namespace {

template <class Real>
struct Exponential;

template <>
struct Exponential<float> {
  using Bits = std::int32_t;
  static constexpr int terms = 8, mantissa = 23, bias = 127;
  static constexpr float lowest = -87.0f, highest = 88.0f;
  static constexpr float round = 12582912.0f;       // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float log2_high = 0.693359375f;  // 9 bits: its products with integers are exact
  static constexpr float log2_low = -2.12194440e-4f;
};

template <>
struct Exponential<double> {
  using Bits = std::int64_t;
  static constexpr int terms = 14, mantissa = 52, bias = 1023;
  static constexpr double lowest = -708.0, highest = 709.0;
  static constexpr double round = 6755399441055744.0;
  static constexpr double log2_high = 0.693145751953125;  // 16 bits
  static constexpr double log2_low = 1.42860682030941723212e-6;
};

inline constexpr double inverse_factorial[] = {1.0,
                                               1.0,
                                               1.0 / 2,
                                               1.0 / 6,
                                               1.0 / 24,
                                               1.0 / 120,
                                               1.0 / 720,
                                               1.0 / 5040,
                                               1.0 / 40320,
                                               1.0 / 362880,
                                               1.0 / 3628800,
                                               1.0 / 39916800,
                                               1.0 / 479001600,
                                               1.0 / 6227020800.0};

/// exp(x) = 2^n * Taylor(x - n log 2), |x - n log 2| <= log(2) / 2, for x clamped to where the
/// result is a normal number; NaN stays NaN.
template <class Real>
inline Real exponential(Real x) {
  using E = Exponential<Real>;
  const Real above = x > E::lowest ? x : E::lowest;  // NaN becomes a number: it has no power n
  const Real clamped = above < E::highest ? above : E::highest;
  const Real n = (clamped * Real(1.44269504088896340736) + E::round) - E::round;
  const Real rest = (clamped - n * E::log2_high) - n * E::log2_low;
  Real sum = Real(inverse_factorial[E::terms - 1]);
#pragma GCC unroll 16
  for (int i = E::terms - 2; i >= 0; --i) sum = sum * rest + Real(inverse_factorial[i]);
  const typename E::Bits power =
      static_cast<typename E::Bits>(static_cast<std::int32_t>(n)) + E::bias;
  const Real result = sum * __builtin_bit_cast(Real, power << E::mantissa);
  return x == x ? result : x;
}

/// log(x) for normal x > 0: x = 2^e * f, log(f) = 2 atanh(s), s = (f - 1) / (f + 1), f in [2/3,
/// 4/3].
/// NaN and infinity stay what they are.
inline double logarithm(double x) {
  if (!(x - x == 0)) return x;
  const auto bits = __builtin_bit_cast(std::int64_t, x);
  std::int64_t exponent = (bits >> 52) - 1023;
  double f = __builtin_bit_cast(double, (bits & 0xfffffffffffff) | (std::int64_t{1023} << 52));
  if (f > 4.0 / 3) {
    f *= 0.5;
    ++exponent;
  }
  const double s = (f - 1) / (f + 1);
  double sum = 0;
  for (int i = 23; i >= 1; i -= 2) sum = sum * (s * s) + 1.0 / i;
  return 2 * s * sum + static_cast<double>(exponent) * 0.693147180559945309417;
}

/// Sixteen running sums, element i in lane i % 16; joined halves onto halves.
template <class Real>
struct Lanes {
  static constexpr int count = 16;
  Real lane[count] = {};
  Real total() {
    for (int half = count / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
  }
};

/// Calls visit(i, lane) for every i < count, in whole groups of 16 and then the rest.
template <class Real, class Visit>
inline Real lane_sum(std::int64_t count, Visit term) {
  Lanes<Real> sum;
  std::int64_t i = 0;
  for (; i + Lanes<Real>::count <= count; i += Lanes<Real>::count)
    for (int lane = 0; lane < Lanes<Real>::count; ++lane) sum.lane[lane] += term(i + lane);
  for (int lane = 0; i + lane < count; ++lane) sum.lane[lane] += term(i + lane);
  return sum.total();
}

/// sigmoid(2u) and 2 du/dx of GELU's tanh form.
template <class Real>
inline Real gelu_gate(Real x) {
  const Real u2 = Real(1.59576912160573071) * (x + Real(0.044715) * (x * x * x));
  return Real(1) / (Real(1) + exponential(-u2));
}

template <class Real>
void gelu_forward(Real* __restrict out, const Real* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] * gelu_gate(x[i]);
}

template <class Real>
void gelu_backward(Real* __restrict dx, const Real* __restrict x, const Real* __restrict dout,
                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Real gate = gelu_gate(x[i]);
    const Real slope = Real(1.59576912160573071) * (Real(1) + Real(0.134145) * (x[i] * x[i]));
    dx[i] = dout[i] * (gate + x[i] * (gate * (Real(1) - gate) * slope));
  }
}

template <class Real>
void layernorm_forward(Real* __restrict out, Real* __restrict mean, Real* __restrict rstd,
                       const Real* __restrict x, const Real* __restrict weight,
                       const Real* __restrict bias, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, out += width) {
    const Real* row = x;
    const Real middle = lane_sum<Real>(width, [=](std::int64_t i) { return row[i]; }) / Real(width);
    const Real variance =
        lane_sum<Real>(width,
                       [=](std::int64_t i) { return (row[i] - middle) * (row[i] - middle); }) /
        Real(width);
    const Real scale = Real(1) / static_cast<Real>(__builtin_sqrt(variance + Real(1e-5)));
    for (std::int64_t i = 0; i < width; ++i)
      out[i] = (row[i] - middle) * scale * weight[i] + bias[i];
    mean[r] = middle;
    rstd[r] = scale;
  }
}

template <class Real>
void layernorm_backward(Real* __restrict dx, Real* __restrict dweight, Real* __restrict dbias,
                        const Real* __restrict dout, const Real* __restrict x,
                        const Real* __restrict mean, const Real* __restrict rstd,
                        const Real* __restrict weight, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) dweight[i] = dbias[i] = Real(0);
  for (std::int64_t r = 0; r < rows; ++r, x += width, dout += width, dx += width) {
    const Real *row = x, *slope = dout;
    const Real middle = mean[r], scale = rstd[r];
    const Real mean_d =
        lane_sum<Real>(width, [=](std::int64_t i) { return slope[i] * weight[i]; }) / Real(width);
    const Real mean_dx = lane_sum<Real>(width,
                                        [=](std::int64_t i) {
                                          return slope[i] * weight[i] * ((row[i] - middle) * scale);
                                        }) /
                         Real(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const Real normal = (row[i] - middle) * scale;
      dweight[i] += slope[i] * normal;
      dbias[i] += slope[i];
      dx[i] += (slope[i] * weight[i] - mean_d - normal * mean_dx) * scale;
    }
  }
}

template <class Real>
Real largest(const Real* x, std::int64_t count) {
  Real most = x[0];
  for (std::int64_t i = 1; i < count; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

template <class Real>
void causal_softmax_forward(Real* scores, Real scale, std::int64_t context) {
  for (std::int64_t r = 0; r < context; ++r) {
    Real* row = scores + r * context;
    const Real most = scale * largest(row, r + 1);
    for (std::int64_t i = 0; i <= r; ++i) row[i] = exponential(scale * row[i] - most);
    for (std::int64_t i = r + 1; i < context; ++i) row[i] = Real(0);
    const Real inverse = Real(1) / lane_sum<Real>(r + 1, [=](std::int64_t i) { return row[i]; });
    for (std::int64_t i = 0; i <= r; ++i) row[i] *= inverse;
  }
}

template <class Real>
void causal_softmax_backward(Real* __restrict gradient, const Real* __restrict probabilities,
                             Real scale, std::int64_t context) {
  for (std::int64_t r = 0; r < context; ++r) {
    Real* d = gradient + r * context;
    const Real* p = probabilities + r * context;
    const Real dot = lane_sum<Real>(r + 1, [=](std::int64_t i) { return d[i] * p[i]; });
    for (std::int64_t i = 0; i <= r; ++i) d[i] = p[i] * (d[i] - dot) * scale;
    for (std::int64_t i = r + 1; i < context; ++i) d[i] = Real(0);
  }
}

template <class Real>
double cross_entropy(Real* logits, const std::int32_t* targets, Real gradient_scale,
                     std::int64_t rows, std::int64_t classes) {
  double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    Real* row = logits + r * classes;
    const Real most = largest(row, classes);
    const Real wanted = row[targets[r]] - most;
    for (std::int64_t i = 0; i < classes; ++i) row[i] = exponential(row[i] - most);
    const Real sum = lane_sum<Real>(classes, [=](std::int64_t i) { return row[i]; });
    const Real inverse = Real(1) / sum;
    for (std::int64_t i = 0; i < classes; ++i) row[i] = row[i] * inverse * gradient_scale;
    row[targets[r]] -= gradient_scale;
    loss += logarithm(static_cast<double>(sum)) - static_cast<double>(wanted);
  }
  return loss;
}

template <class Real>
void add(Real* out, const Real* a, const Real* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

template <class Real>
void column_sum(Real* __restrict out, const Real* __restrict x, std::int64_t rows,
                std::int64_t columns) {
  for (std::int64_t i = 0; i < columns; ++i) out[i] = Real(0);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < columns; ++i) out[i] += x[r * columns + i];
}

}  // namespace
}  // namespace train_gpt
