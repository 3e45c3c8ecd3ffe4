// The kernels of train_gpt --device cuda in bf16, at the shapes of the models that are measured:
// time, bytes or operations that the work needs, and the share of a copy timed in this process.
// The floor of a row is its bytes at the copy's speed or its operations at a matrix product's.

#include "cuda/kernels.hpp"
#include "cuda/matmul.hpp"
#include "cuda_measure.hpp"

namespace {

using namespace flatshard_bench;
namespace gpt = train_gpt::gpu;
using T = Bf16;

struct Shape {
  const char* name;
  std::int64_t sequences, context, width, heads, vocabulary;
  std::int64_t rows() const { return sequences * context; }
};
constexpr Shape shapes[] = {{"163M", 16, 1024, 768, 12, 50304},
                            {"1417M", 8, 1024, 2048, 16, 50304}};

class Rows {
 public:
  explicit Rows(CudaBench& bench) : bench_(bench) {}

  void bytes(const std::string& name, double bytes, const std::function<void()>& run) {
    const double ms = bench_.milliseconds(run), speed = bytes / ms * 1e-9;
    if (copy_ == 0) copy_ = speed;
    std::printf("| %s | %.4f | %.2f TB/s | %.2f |\n", name.c_str(), ms, speed, speed / copy_);
  }
  void operations(const std::string& name, double operations, const std::function<void()>& run) {
    const double ms = bench_.milliseconds(run);
    std::printf("| %s | %.4f | %.0f TFLOP/s | |\n", name.c_str(), ms, operations / ms * 1e-9);
  }

 private:
  CudaBench& bench_;
  double copy_ = 0;
};

void element_rows(CudaBench& bench, Rows& rows, const Shape& s) {
  const std::int64_t n = s.rows(), c = s.width;
  const double plane = 2.0 * static_cast<double>(n * c);
  T *x = bench.filled<T>(n * 4 * c, 1), *y = bench.filled<T>(n * 4 * c, 2),
    *z = bench.array<T>(n * 4 * c), *weight = bench.filled<T>(4 * c, 3),
    *bias = bench.array<T>(4 * c);
  float *mean = bench.array<float>(n), *rstd = bench.array<float>(n);
  float* scratch = bench.array<float>(static_cast<std::int64_t>(gpt::column_scratch(n, 4 * c)));
  gpt::StreamHandle stream = bench.native();
  rows.bytes("copy (4C)", 8 * plane, [&] { bench.device.copy(x, z, n * 8 * c, *bench.stream); });
  rows.bytes("layer norm forward", 2 * plane,
             [&] { gpt::layernorm_forward(z, mean, rstd, x, weight, weight, n, c, stream); });
  rows.bytes("layer norm backward", 4 * plane,
             [&] { gpt::layernorm_backward(z, true, y, x, mean, rstd, weight, n, c, stream); });
  rows.bytes("layer norm weights", 2 * plane, [&] {
    gpt::layernorm_weight_gradients(bias, bias, y, x, mean, rstd, n, c, scratch, stream);
  });
  rows.bytes("GELU backward, bias (4C)", 12 * plane,
             [&] { gpt::gelu_backward(z, bias, y, x, n, 4 * c, scratch, stream); });
  rows.bytes("column sum (C)", plane, [&] { gpt::column_sum(bias, x, n, c, scratch, stream); });
  rows.bytes("column sum (3C)", 3 * plane,
             [&] { gpt::column_sum(bias, x, n, 3 * c, scratch, stream); });
}

void head_rows(CudaBench& bench, Rows& rows, const Shape& s) {
  const std::int64_t n = s.rows(), v = s.vocabulary;
  T* logits = bench.filled<T>(n * v, 4);
  float *losses = bench.array<float>(n), *scale = bench.filled<float>(1, 5, 0.5);
  auto* targets = bench.array<std::int32_t>(n);
  check(cudaMemset(targets, 0, static_cast<std::size_t>(n) * 4), "cudaMemset");
  rows.bytes("cross-entropy", 4.0 * static_cast<double>(n * v),
             [&] { gpt::cross_entropy(logits, losses, targets, scale, n, n, v, bench.native()); });
}

void attention_rows(CudaBench& bench, Rows& rows, const Shape& s) {
  const std::int64_t n = s.rows(), c = s.width;
  T *qkv = bench.filled<T>(3 * n * c, 6), *dqkv = bench.array<T>(3 * n * c),
    *out = bench.array<T>(n * c), *dout = bench.filled<T>(n * c, 7);
  float *lse = bench.array<float>(n * s.heads), *delta = bench.array<float>(n * s.heads);
  const gpt::AttentionShape shape{s.sequences, s.context, s.heads, c / s.heads};
  const double forward = 2.0 * static_cast<double>(n * c) * static_cast<double>(s.context);
  rows.operations("attention forward (causal half)", forward,
                  [&] { gpt::attention_forward(out, lse, qkv, shape, bench.native()); });
  rows.operations("attention backward (2.5 times that)", 2.5 * forward, [&] {
    gpt::attention_backward(dqkv, delta, dout, qkv, out, lse, shape, bench.native());
  });
}

void product_rows(CudaBench& bench, Rows& rows, const Shape& s) {
  const std::int64_t n = s.rows(), c = s.width, v = s.vocabulary;
  gpt::Matmul<T> matmul{bench.device.memory(), bench.native()};
  T *x = bench.filled<T>(n * 4 * c, 8), *w = bench.filled<T>(v * c, 9), *dw = bench.array<T>(v * c);
  T *wide = bench.filled<T>(n * v, 10), *z = bench.array<T>(n * 4 * c), *bias = dw;
  struct Layer {
    const char* name;
    std::int64_t in, out;
  };
  for (const Layer& l : {Layer{"qkv", c, 3 * c}, Layer{"proj", c, c}, Layer{"fc", c, 4 * c},
                         Layer{"fc proj", 4 * c, c}, Layer{"head", c, v}}) {
    const double work = 2.0 * static_cast<double>(n * l.in) * static_cast<double>(l.out);
    const std::string name = l.name;
    rows.operations(name + " forward", work, [&] {
      matmul.forward(wide, x, w, name == "head" ? nullptr : bias, name == "proj" ? z : nullptr, n,
                     l.in, l.out);
    });
    if (name == "fc")
      rows.operations(name + " forward with GELU", work,
                      [&] { matmul.forward_gelu(wide, z, x, w, bias, n, l.in, l.out); });
    rows.operations(name + " input gradient", work,
                    [&] { matmul.input_gradient(z, wide, w, n, l.in, l.out); });
    rows.operations(name + " weight gradient", work,
                    [&] { matmul.weight_gradient(dw, false, wide, x, n, l.in, l.out); });
  }
}

}  // namespace

int main() {
  for (const Shape& shape : shapes) {
    CudaBench bench{Bytes{12} << 30};
    std::printf("%s\n| %s, bf16 | ms | speed | of the copy |\n|---|---|---|---|\n",
                std::string{bench.device.name()}.c_str(), shape.name);
    Rows rows{bench};
    for (const auto part : {element_rows, head_rows, attention_rows, product_rows}) {
      bench.reset();
      part(bench, rows, shape);
    }
  }
}
