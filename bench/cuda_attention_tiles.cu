// Which tiles attention should use for heads of HEAD_WIDTH columns (64 or 128) on this GPU.
#include <tuple>

#include "cuda/attention_launch.cuh"
#include "cuda_measure.hpp"

#ifndef HEAD_WIDTH
#define HEAD_WIDTH 64
#endif

namespace {

using namespace flatshard_bench;
namespace gpt = train_gpt::gpu;
using T = __nv_bfloat16;
constexpr int D = HEAD_WIDTH;

struct Data {
  explicit Data(CudaBench& bench)
      : shape{D == 64 ? 16 : 8, 1024, D == 64 ? 12 : 16, D}, stream{bench.native()} {
    const std::int64_t n = shape.sequences * shape.context, c = shape.heads * D;
    qkv = reinterpret_cast<T*>(bench.filled<Bf16>(3 * n * c, 1));
    dout = reinterpret_cast<T*>(bench.filled<Bf16>(n * c, 2));
    dqkv = reinterpret_cast<T*>(bench.array<Bf16>(3 * n * c));
    out = reinterpret_cast<T*>(bench.array<Bf16>(n * c));
    lse = bench.array<float>(n * shape.heads);
    delta = bench.filled<float>(n * shape.heads, 3);
    work = 2.0 * static_cast<double>(n * c) * 1024;
  }
  gpt::AttentionShape shape;
  gpt::StreamHandle stream;
  T *qkv, *dout, *dqkv, *out;
  float *lse, *delta;
  double work;
};

void print(const char* kernel, const char* tiles, double ms, double work) {
  std::printf("%-10s %-14s %.4f ms %5.0f TFLOP/s\n", kernel, tiles, ms, work / ms * 1e-9);
}

template <class Tiling>
void forward(CudaBench& bench, const Data& d, const char* tiles) {
  print("forward", tiles, bench.milliseconds([&] {
    gpt::launch_forward<T, Tiling>(d.out, d.lse, d.qkv, d.shape, d.stream);
  }),
        d.work);
}
template <class Tiling>
void keys(CudaBench& bench, const Data& d, const char* tiles) {
  print("keys", tiles, bench.milliseconds([&] {
    gpt::launch_backward_keys<T, Tiling>(d.dqkv, d.qkv, d.dout, d.lse, d.delta, d.shape, d.stream);
  }),
        2 * d.work);
}
template <class Tiling>
void queries(CudaBench& bench, const Data& d, const char* tiles) {
  print("queries", tiles, bench.milliseconds([&] {
    gpt::launch_backward_queries<T, Tiling>(d.dqkv, d.qkv, d.dout, d.lse, d.delta, d.shape,
                                            d.stream);
  }),
        1.5 * d.work);
}

}  // namespace

int main() {
  CudaBench bench{Bytes{2} << 30};
  const Data data{bench};
  std::printf("heads of %d, causal half counted\n", D);
  forward<gpt::ForwardTiling<D, 2, 4>>(bench, data, "2 x 4");
  forward<gpt::ForwardTiling<D, 1, 4>>(bench, data, "1 x 4");
  forward<gpt::ForwardTiling<D, 1, 8>>(bench, data, "1 x 8");
  keys<gpt::KeyTiling<D, 4, 64>>(bench, data, "4, 64");
  keys<gpt::KeyTiling<D, 8, 64>>(bench, data, "8, 64");
  keys<gpt::KeyTiling<D, 8, 32>>(bench, data, "8, 32");
  keys<gpt::KeyTiling<D, 4, 32>>(bench, data, "4, 32");
  queries<gpt::QueryTiling<D, 1, 4, 64>>(bench, data, "1 x 4, 64");
  queries<gpt::QueryTiling<D, 1, 8, 64>>(bench, data, "1 x 8, 64");
  queries<gpt::QueryTiling<D, 1, 8, 32>>(bench, data, "1 x 8, 32");
  queries<gpt::QueryTiling<D, 2, 4, 32>>(bench, data, "2 x 4, 32");
}
