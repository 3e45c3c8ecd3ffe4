// Every kernel of the GPT on a GPU against its definition in naive loops over double.
#include <doctest/doctest.h>

#include <algorithm>

#include "random.hpp"
#include "train_gpt_arrays.hpp"

namespace {

using namespace train_gpt_test;
namespace gpt = train_gpt::gpu;
using flatshard::Bf16;
using flatshard::Half;

#define ALL_TYPES float, Bf16, Half

/// The norm of an error that one rounding to T and fp32 sums of `terms` terms can leave.
template <class T>
double tolerance(double terms) {
  return unit_roundoff<T> + (terms + 16) * 0x1p-24;
}

struct Size {
  std::int64_t rows, width;
};
constexpr Size sizes[] = {{1, 1}, {3, 7}, {5, 64}, {37, 96}, {260, 768}, {130, 33}};

std::vector<double> layernorm(const std::vector<double>& x, const std::vector<double>& weight,
                              const std::vector<double>& bias, Size size) {
  std::vector<double> out(x.size());
  const auto width = static_cast<std::size_t>(size.width);
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < width; ++i) mean += x[begin + i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      variance += std::pow(x[begin + i] - mean, 2) / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      out[begin + i] = (x[begin + i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
  }
  return out;
}

double gelu(double x) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

}  // namespace

TEST_CASE_TEMPLATE("layer norm forward", T, ALL_TYPES) {
  auto random = flatshard_test::generator(11);
  for (const Size size : sizes) {
    const auto count = static_cast<std::size_t>(size.rows * size.width);
    const auto width = static_cast<std::size_t>(size.width);
    const Sample<T> x(count, 2, random, 0.5), weight(width, 1, random), bias(width, 1, random);
    Array<T> in(x.stored), w(weight.stored), b(bias.stored), out(count);
    Array<float> mean(static_cast<std::size_t>(size.rows)),
        rstd(static_cast<std::size_t>(size.rows));
    gpt::layernorm_forward(out.data(), mean.data(), rstd.data(), in.data(), w.data(), b.data(),
                           size.rows, size.width, gpu().handle());
    INFO("rows ", size.rows, " width ", size.width);
    // The mean's error is divided by the deviation, here about 2.
    CHECK(relative_error(exact(out.values()), layernorm(x.exact, weight.exact, bias.exact, size)) <=
          2 * tolerance<T>(static_cast<double>(size.width)));
  }
}

TEST_CASE_TEMPLATE("layer norm backward", T, ALL_TYPES) {
  auto random = flatshard_test::generator(12);
  for (const Size size : sizes)
    for (const bool accumulate : {false, true}) {
      const auto rows = static_cast<std::size_t>(size.rows);
      const auto width = static_cast<std::size_t>(size.width), count = rows * width;
      const Sample<T> x(count, 2, random, 0.5), weight(width, 1, random), slope(count, 1, random),
          before(count, 1, random);
      std::vector<double> dx(count), dweight(width), dbias(width);
      std::vector<float> mean(rows), rstd(rows);
      for (std::size_t r = 0; r < rows; ++r) {
        const double* const row = x.exact.data() + r * width;
        double middle = 0, variance = 0;
        for (std::size_t i = 0; i < width; ++i) middle += row[i] / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i)
          variance += std::pow(row[i] - middle, 2) / static_cast<double>(width);
        mean[r] = static_cast<float>(middle);
        rstd[r] = static_cast<float>(1 / std::sqrt(variance + 1e-5));
        const double center = static_cast<double>(mean[r]), scale = static_cast<double>(rstd[r]);
        double sum = 0, product = 0;
        const auto at = [&](std::size_t i) { return r * width + i; };
        const auto normal = [&](std::size_t i) { return (row[i] - center) * scale; };
        for (std::size_t i = 0; i < width; ++i) {
          const double d = slope.exact[at(i)];
          sum += d * weight.exact[i] / static_cast<double>(width);
          product += d * weight.exact[i] * normal(i) / static_cast<double>(width);
          dweight[i] += d * normal(i);
          dbias[i] += d;
        }
        for (std::size_t i = 0; i < width; ++i)
          dx[at(i)] = (accumulate ? before.exact[at(i)] : 0) +
                      (slope.exact[at(i)] * weight.exact[i] - sum - normal(i) * product) * scale;
      }
      Array<T> in(x.stored), w(weight.stored), dout(slope.stored), weight_out(width),
          bias_out(width);
      Array<T> out = accumulate ? Array<T>(before.stored) : Array<T>(count);
      Array<float> means(mean), scales(rstd), scratch(gpt::column_scratch(size.rows, size.width));
      gpt::layernorm_backward(out.data(), accumulate, dout.data(), in.data(), means.data(),
                              scales.data(), w.data(), size.rows, size.width, gpu().handle());
      gpt::layernorm_weight_gradients(weight_out.data(), bias_out.data(), dout.data(), in.data(),
                                      means.data(), scales.data(), size.rows, size.width,
                                      scratch.data(), gpu().handle());
      INFO("rows ", size.rows, " width ", size.width, " accumulate ", accumulate);
      // In a row of one column everything cancels, and 1 / sqrt(epsilon) magnifies what rounding
      // leaves.
      if (size.width > 1)
        CHECK(relative_error(exact(out.values()), dx) <=
              4 * tolerance<T>(static_cast<double>(size.width)));
      CHECK(relative_error(exact(weight_out.values()), dweight) <=
            4 * tolerance<T>(static_cast<double>(size.rows)));
      CHECK(relative_error(exact(bias_out.values()), dbias) <=
            4 * tolerance<T>(static_cast<double>(size.rows)));
    }
}

TEST_CASE_TEMPLATE("GELU, its gradient, and column sums", T, ALL_TYPES) {
  auto random = flatshard_test::generator(13);
  for (const Size size : sizes) {
    const auto width = static_cast<std::size_t>(size.width);
    const std::size_t count = static_cast<std::size_t>(size.rows) * width;
    const Sample<T> x(count, 2, random), slope(count, 1, random);
    std::vector<double> out(count), dx(count), dbias(width), sums(width);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = gelu(x.exact[i]);
      dx[i] = slope.exact[i] * gelu_slope(x.exact[i]);
      sums[i % width] += x.exact[i];
    }
    Array<T> in(x.stored), forward(count), backward(slope.stored), bias(width), summed(width);
    Array<float> scratch(gpt::column_scratch(size.rows, size.width));
    gpt::gelu_forward(forward.data(), in.data(), static_cast<std::int64_t>(count), gpu().handle());
    gpt::column_sum(summed.data(), in.data(), size.rows, size.width, scratch.data(),
                    gpu().handle());
    gpt::gelu_backward(backward.data(), bias.data(), backward.data(), in.data(), size.rows,
                       size.width, scratch.data(), gpu().handle());
    INFO("rows ", size.rows, " width ", size.width);
    constexpr double smallest = smallest_normal<T>;  // GELU of -4.6 is less
    CHECK(relative_error(exact(forward.values()), out, smallest) <= 2 * tolerance<T>(0));
    const std::vector<double> got = exact(backward.values());
    CHECK(relative_error(got, dx, smallest) <= 2 * tolerance<T>(16));
    for (std::size_t i = 0; i < count; ++i) dbias[i % width] += got[i];  // of what was stored
    const double terms = static_cast<double>(size.rows);
    CHECK(relative_error(exact(bias.values()), dbias) <= 4 * tolerance<T>(terms));
    CHECK(relative_error(exact(summed.values()), sums) <= 4 * tolerance<T>(terms));
  }
}

TEST_CASE_TEMPLATE("embedding, forward and by sorted segments backward", T, ALL_TYPES) {
  auto random = flatshard_test::generator(14);
  for (const std::int64_t width : {1, 7, 64, 768, 2056})
    for (const bool tied : {false, true}) {
      const std::int64_t sequences = 3, context = 9, vocabulary = 21, rows = sequences * context;
      const auto c = static_cast<std::size_t>(width), v = static_cast<std::size_t>(vocabulary);
      const auto r = static_cast<std::size_t>(rows), t = static_cast<std::size_t>(context);
      const Sample<T> wte(v * c, 1, random), wpe(t * c, 1, random), slope(r * c, 1, random);
      const Sample<float> head(v * c, 1, random);
      std::uniform_int_distribution<std::int32_t> any{0, static_cast<std::int32_t>(vocabulary) / 2};
      std::vector<std::int32_t> tokens(r), order(r), begin(v + 1);
      for (std::size_t i = 0; i < r; ++i) tokens[i] = any(random), order[i] = static_cast<int>(i);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
      });
      for (std::size_t i = 0; i < r; ++i) ++begin[static_cast<std::size_t>(tokens[i]) + 1];
      for (std::size_t i = 0; i < v; ++i) begin[i + 1] += begin[i];
      std::vector<double> out(r * c), dwte(v * c), dwpe(t * c);
      if (tied) dwte = head.exact;
      for (std::size_t i = 0; i < r * c; ++i) {
        const std::size_t token = static_cast<std::size_t>(tokens[i / c]) * c + i % c;
        out[i] = wte.exact[token] + wpe.exact[i % (t * c)];
        dwte[token] += slope.exact[i];
        dwpe[i % (t * c)] += slope.exact[i];
      }
      Array<T> w(wte.stored), p(wpe.stored), d(slope.stored), x(r * c), dw(v * c), dp(t * c);
      Array<float> h(head.stored);
      Array<std::int32_t> ids(tokens), sorted(order), starts(begin);
      gpt::embed_forward(x.data(), w.data(), p.data(), ids.data(), rows, context, width,
                         gpu().handle());
      gpt::embed_backward_tokens(dw.data(), tied ? h.data() : nullptr, d.data(), sorted.data(),
                                 starts.data(), vocabulary, width, gpu().handle());
      gpt::embed_backward_positions(dp.data(), d.data(), sequences, context, width, gpu().handle());
      INFO("width ", width, " tied ", tied);
      CHECK(relative_error(exact(x.values()), out) <= tolerance<T>(0));
      CHECK(relative_error(exact(dw.values()), dwte) <= tolerance<T>(30));
      CHECK(relative_error(exact(dp.values()), dwpe) <= tolerance<T>(30));
    }
}

TEST_CASE_TEMPLATE("cross-entropy and its gradient in place", T, ALL_TYPES) {
  auto random = flatshard_test::generator(15);
  for (const std::int64_t classes : {1, 5, 256, 5003, 50304})
    for (const double deviation : {1.0, 10.0}) {
      const std::int64_t rows = classes > 6000 ? 3 : 11;
      const auto r = static_cast<std::size_t>(rows), v = static_cast<std::size_t>(classes);
      const Sample<T> logits(r * v, deviation, random);
      std::uniform_int_distribution<std::int32_t> any{0, static_cast<std::int32_t>(classes) - 1};
      std::vector<std::int32_t> targets(r);
      for (std::int32_t& target : targets) target = any(random);
      const double scale = 1024.0 / 77;  // a loss scale over the tokens of a larger micro-batch
      std::vector<double> slopes(r * v), losses(r);
      double mean = 0.25;
      for (std::size_t i = 0; i < r; ++i) {
        const double* const row = logits.exact.data() + i * v;
        const auto target = static_cast<std::size_t>(targets[i]);
        const double most = *std::max_element(row, row + v);
        double sum = 0;
        for (std::size_t j = 0; j < v; ++j) sum += std::exp(row[j] - most);
        losses[i] = std::log(sum) - (row[target] - most);
        for (std::size_t j = 0; j < v; ++j)
          slopes[i * v + j] = scale * (std::exp(row[j] - most) / sum - (j == target ? 1 : 0));
        mean += losses[i] / static_cast<double>(rows) / 7;
      }
      Array<T> x(logits.stored);
      Array<std::int32_t> wanted(targets);
      Array<float> lost(r), loss_scale(std::vector<float>{1024.0f});
      Array<double> total(std::vector<double>{0.25});
      gpt::cross_entropy(x.data(), lost.data(), wanted.data(), loss_scale.data(), 77, rows, classes,
                         gpu().handle());
      gpt::add_mean_loss(total.data(), lost.data(), rows, 7, gpu().handle());
      INFO("classes ", classes, " deviation ", deviation);
      if (classes > 1) {
        CHECK(relative_error(exact(lost.values()), losses) <= 64 * 0x1p-24);
        CHECK(relative_error(exact(x.values()), slopes) <= tolerance<T>(64));
      } else {
        CHECK(exact(x.values()) == std::vector<double>(r, 0));
      }
      CHECK(total.values()[0] == doctest::Approx(mean).epsilon(64 * 0x1p-24));
    }
}

TEST_CASE_TEMPLATE("rounding from float", T, Bf16, Half) {
  auto random = flatshard_test::generator(16);
  for (const std::size_t count : {1u, 4u, 8u, 1023u, 4099u}) {
    const Sample<float> x(count, 1, random);
    Array<float> in(x.stored);
    Array<T> out(count);
    gpt::round_to(out.data(), in.data(), static_cast<std::int64_t>(count), gpu().handle());
    const std::vector<T> got = out.values();
    for (std::size_t i = 0; i < count; ++i)
      REQUIRE(flatshard::convert<float>(got[i]) ==
              flatshard::convert<float>(flatshard::convert<T>(x.stored[i])));
  }
}
