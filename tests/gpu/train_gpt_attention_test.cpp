// Causal attention on a GPU, forward and backward, against its definition in double.
#include <doctest/doctest.h>

#include "random.hpp"
#include "train_gpt_arrays.hpp"

namespace {

using namespace train_gpt_test;
namespace gpt = train_gpt::gpu;
using flatshard::Bf16;
using flatshard::Half;

/// One head of one sequence; element (t, i) of an operand lies at base[t * stride + i].
struct Head {
  const double *q, *k, *v, *dout;
  double *out, *dq, *dk, *dv;
  std::size_t stride, out_stride, context, width;

  void run() const {
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    std::vector<double> p(context), dp(context);
    for (std::size_t r = 0; r < context; ++r) {
      double most = -1e300, sum = 0, dot = 0;
      for (std::size_t c = 0; c <= r; ++c) {
        p[c] = dp[c] = 0;
        for (std::size_t i = 0; i < width; ++i) {
          p[c] += q[r * stride + i] * k[c * stride + i] * scale;
          dp[c] += dout[r * out_stride + i] * v[c * stride + i];
        }
        most = std::fmax(most, p[c]);
      }
      for (std::size_t c = 0; c <= r; ++c) sum += p[c] = std::exp(p[c] - most);
      for (std::size_t c = 0; c <= r; ++c) dot += (p[c] /= sum) * dp[c];
      for (std::size_t c = 0; c <= r; ++c)
        for (std::size_t i = 0; i < width; ++i) {
          const double ds = p[c] * (dp[c] - dot) * scale;
          out[r * out_stride + i] += p[c] * v[c * stride + i];
          dv[c * stride + i] += p[c] * dout[r * out_stride + i];
          dq[r * stride + i] += ds * k[c * stride + i];
          dk[c * stride + i] += ds * q[r * stride + i];
        }
    }
  }
};

template <class T>
void check(const gpt::AttentionShape& s, std::mt19937_64& random) {
  const auto rows = static_cast<std::size_t>(s.sequences * s.context);
  const auto width = static_cast<std::size_t>(s.heads * s.head_width);
  const auto heads = static_cast<std::size_t>(s.sequences * s.heads * s.context);
  const Sample<T> qkv(rows * 3 * width, 1, random), slope(rows * width, 1, random);
  std::vector<double> out(rows * width), dqkv(rows * 3 * width);
  for (std::size_t sequence = 0; sequence < static_cast<std::size_t>(s.sequences); ++sequence)
    for (std::size_t head = 0; head < static_cast<std::size_t>(s.heads); ++head) {
      const auto d = static_cast<std::size_t>(s.head_width);
      const auto t = static_cast<std::size_t>(s.context);
      const std::size_t wide = sequence * t * 3 * width + head * d;
      const std::size_t narrow = sequence * t * width + head * d;
      const double* const q = qkv.exact.data() + wide;
      double* const dq = dqkv.data() + wide;
      Head{q,
           q + width,
           q + 2 * width,
           slope.exact.data() + narrow,
           out.data() + narrow,
           dq,
           dq + width,
           dq + 2 * width,
           3 * width,
           width,
           t,
           d}
          .run();
    }
  Array<T> in(qkv.stored), dout(slope.stored), result(rows * width), gradient(rows * 3 * width);
  Array<float> lse(heads), delta(heads);
  gpt::attention_forward(result.data(), lse.data(), in.data(), s, gpu().handle());
  gpt::attention_backward(gradient.data(), delta.data(), dout.data(), in.data(), result.data(),
                          lse.data(), s, gpu().handle());
  INFO("sequences ", s.sequences, " context ", s.context, " heads ", s.heads, " of ", s.head_width);
  // Rounded to T: probabilities and result; backward also what multiplies the sums, and the result
  // again in delta. Sums in fp32 over at most T + D terms.
  const double sums = static_cast<double>(s.context + s.head_width + 16) * 0x1p-24;
  CHECK(relative_error(exact(result.values()), out) <= 2 * (unit_roundoff<T> + sums));
  CHECK(relative_error(exact(gradient.values()), dqkv) <= 4 * (unit_roundoff<T> + sums));
  const std::vector<T> first = gradient.values();
  gpt::attention_backward(gradient.data(), delta.data(), dout.data(), in.data(), result.data(),
                          lse.data(), s, gpu().handle());
  CHECK(std::memcmp(first.data(), gradient.values().data(), sizeof(T) * first.size()) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("attention is what it is by definition", T, float, Bf16, Half) {
  auto random = flatshard_test::generator(21);
  for (const std::int64_t width : {32, 64, 128})
    for (const std::int64_t context : {1, 2, 63, 64, 65, 128, 200})
      if (!flatshard_test::short_run() || context == 65)
        check<T>({2, context, context < 100 ? 3 : 1, width}, random);
}

TEST_CASE_TEMPLATE("heads that no tensor core takes", T, float, Bf16, Half) {
  auto random = flatshard_test::generator(22);
  for (const std::int64_t width : {1, 3, 20, 96, 256})
    for (const std::int64_t context : {1, 33, 70}) check<T>({1, context, 2, width}, random);
}

TEST_CASE("long sequences") {
  auto random = flatshard_test::generator(23);
  check<Bf16>({1, 1025, 1, 64}, random);
  check<Bf16>({1, 777, 1, 128}, random);
}
