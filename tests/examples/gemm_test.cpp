#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "random.hpp"

namespace {

using namespace train_gpt;
using flatshard::best_instruction_set;
using flatshard::InstructionSet;
using flatshard::is_available;

constexpr InstructionSet all_sets[] = {InstructionSet::Baseline, InstructionSet::Avx2,
                                       InstructionSet::Avx512};

template <class Real>
std::vector<Real> random_numbers(std::int64_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<Real> numbers(static_cast<std::size_t>(count));
  for (Real& x : numbers) x = static_cast<Real>(normal(random));
  return numbers;
}

struct Size {
  std::int64_t m, n, k;
};

enum class From { zero, bias, itself };

/// The product by its definition, and by each instruction set, bit for bit.
template <class Real>
void check_product(const Size& size, bool a_transposed, bool b_transposed, From from) {
  const auto [m, n, k] = size;
  auto random = flatshard_test::generator(static_cast<std::uint64_t>(m * 10007 + n * 101 + k));
  const std::vector<Real> a = random_numbers<Real>(m * k + 1, random);
  const std::vector<Real> b = random_numbers<Real>(k * n + 1, random);
  const std::vector<Real> begin = random_numbers<Real>(m * n + n + 1, random);
  const std::int64_t a_row = a_transposed ? 1 : k, a_column = a_transposed ? m : 1;
  const std::int64_t b_row = b_transposed ? 1 : n, b_column = b_transposed ? k : 1;

  std::vector<Real> expected(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      Real sum = from == From::zero
                     ? Real(0)
                     : begin[static_cast<std::size_t>(from == From::bias ? j : i * n + j)];
      for (std::int64_t p = 0; p < k; ++p)
        sum = std::fma(a[static_cast<std::size_t>(i * a_row + p * a_column)],
                       b[static_cast<std::size_t>(p * b_row + j * b_column)], sum);
      expected[static_cast<std::size_t>(i * n + j)] = sum;
    }

  for (const InstructionSet set : all_sets) {
    if (!is_available(set)) continue;
    if (set == InstructionSet::Baseline && m * n * k > 100000) continue;  // 50 times slower
    for (const std::int64_t shift : {0, 1}) {  // whatever the alignment of the operands
      std::vector<Real> scratch(gemm_scratch_elements + 16, std::numeric_limits<Real>::quiet_NaN());
      std::vector<Real> left(a), right(b);
      left.insert(left.begin(), static_cast<std::size_t>(shift), Real(7));
      right.insert(right.begin(), static_cast<std::size_t>(shift), Real(7));
      const Real poison = std::numeric_limits<Real>::quiet_NaN();
      std::vector<Real> c(static_cast<std::size_t>(m * n + 2), poison);
      if (from == From::itself) std::copy_n(begin.begin(), m * n, c.begin() + 1);
      const Real* start = from == From::zero   ? nullptr
                          : from == From::bias ? begin.data()
                                               : c.data() + 1;
      kernels<Real>(set).gemm({m, n, k, left.data() + shift, a_row, a_column, right.data() + shift,
                               b_row, b_column, c.data() + 1, n, start,
                               from == From::itself ? n : 0, scratch.data()});
      INFO("set ", kernels<Real>(set).name, " m ", size.m, " n ", size.n, " k ", size.k);
      CHECK(std::isnan(c.front()));
      CHECK(std::isnan(c.back()));
      CHECK(std::memcmp(c.data() + 1, expected.data(), sizeof(Real) * expected.size()) == 0);
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a product is one chain of fma per element, on every instruction set", Real,
                   float, double) {
  for (const Size& size : {Size{1, 1, 1}, Size{3, 5, 0}, Size{7, 33, 9}, Size{37, 45, 301},
                           Size{64, 32, 64}, Size{8, 64, 256}, Size{35, 31, 257}, Size{2, 530, 3}})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        for (const From from : {From::zero, From::bias, From::itself})
          check_product<Real>(size, a_transposed, b_transposed, from);
}

TEST_CASE("element-wise kernels leave the same bits on every instruction set") {
  auto random = flatshard_test::generator();
  const std::int64_t rows = 5, width = 37;
  const std::vector<float> x = random_numbers<float>(rows * width, random);
  const std::vector<float> weight = random_numbers<float>(width, random);
  std::vector<float> first;
  for (const InstructionSet set : all_sets) {
    if (!is_available(set)) continue;
    const Kernels<float>& k = kernels<float>(set);
    std::vector<float> out(static_cast<std::size_t>(8 * rows * width), 0.0f);
    float* next = out.data();
    const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
    float* mean = take(rows);
    float* rstd = take(rows);
    float* normal = take(rows * width);
    k.layernorm_forward(normal, mean, rstd, x.data(), weight.data(), weight.data(), rows, width);
    float* dx = take(rows * width);
    float* dweight = take(width);
    float* dbias = take(width);
    k.layernorm_backward(dx, dweight, dbias, normal, x.data(), mean, rstd, weight.data(), rows,
                         width);
    float* gelu = take(rows * width);
    k.gelu_forward(gelu, x.data(), rows * width);
    k.gelu_backward(take(rows * width), x.data(), gelu, rows * width);
    float* scores = take(rows * rows);
    std::copy_n(x.begin(), rows * rows, scores);
    k.causal_softmax_forward(scores, 0.3f, rows);
    float* dscores = take(rows * rows);
    std::copy_n(x.begin(), rows * rows, dscores);
    k.causal_softmax_backward(dscores, scores, 0.3f, rows);
    float* logits = take(rows * width);
    std::copy_n(x.begin(), rows * width, logits);
    const std::int32_t targets[] = {0, 36, 5, 5, 17};
    const double loss = k.cross_entropy(logits, targets, 0.5f, rows, width);
    *take(1) = static_cast<float>(loss);
    k.column_sum(take(width), x.data(), rows, width);
    if (first.empty()) first = out;
    INFO("set ", k.name);
    CHECK(std::memcmp(first.data(), out.data(), sizeof(float) * out.size()) == 0);
  }
}

TEST_CASE_TEMPLATE("GELU and softmax agree with the C library", Real, float, double) {
  const Kernels<Real>& k = kernels<Real>(best_instruction_set());
  const double tolerance = sizeof(Real) == 4 ? 1e-6 : 1e-14;
  for (double x = -30; x < 30; x += 0.37) {
    const double u = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    const Real in = static_cast<Real>(x);
    Real out = 0;
    k.gelu_forward(&out, &in, 1);
    CHECK(static_cast<double>(out) ==
          doctest::Approx(0.5 * x * (1 + std::tanh(u))).epsilon(tolerance).scale(1));
  }
  Real logits[] = {Real(1.5), Real(-200), Real(3)};
  const std::int32_t target = 0;
  const double loss = k.cross_entropy(logits, &target, Real(1), 1, 3);
  const double sum = std::exp(-1.5) + std::exp(-203.0) + 1;
  CHECK(loss == doctest::Approx(std::log(sum) + 1.5).epsilon(tolerance));
  CHECK(static_cast<double>(logits[0]) ==
        doctest::Approx(std::exp(-1.5) / sum - 1).epsilon(tolerance));
  CHECK(static_cast<double>(logits[2]) == doctest::Approx(1 / sum).epsilon(tolerance));
}

TEST_CASE_TEMPLATE("overflow reaches the loss and the gradients", Real, float, double) {
  for (const InstructionSet set : all_sets) {
    if (!is_available(set)) continue;
    for (const Real bad :
         {std::numeric_limits<Real>::infinity(), std::numeric_limits<Real>::quiet_NaN()}) {
      const Kernels<Real>& k = kernels<Real>(set);
      std::vector<Real> logits(40, Real(1));
      logits[17] = bad;
      const std::int32_t target = 3;
      CHECK_FALSE(std::isfinite(k.cross_entropy(logits.data(), &target, Real(1), 1, 40)));
      CHECK_FALSE(std::isfinite(logits[3]));
      std::vector<Real> scores(25, Real(1));
      scores[11] = bad;
      k.causal_softmax_forward(scores.data(), Real(1), 5);
      CHECK_FALSE(std::isfinite(scores[10]));
      CHECK(std::isfinite(scores[5]));
      Real out = 0;
      k.gelu_forward(&out, &bad, 1);
      CHECK_FALSE(std::isfinite(out));
      k.gelu_backward(&out, &bad, logits.data(), 1);
      CHECK_FALSE(std::isfinite(out));
    }
  }
}
