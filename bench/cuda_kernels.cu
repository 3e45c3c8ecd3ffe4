// CUDA kernels against the best copy kernel of ours in the same process: casts, flatten, norm, sums
// and optimizer steps. Usage: cuda_kernels_bench [--json] [--variants]
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include <cstring>
#include <numeric>

#include "../kernels/cuda/copy.cuh"
#include "cuda_lists.hpp"
#include "cuda_measure.hpp"
#include "cuda_step_bench.cuh"

namespace flatshard_bench {
namespace {

constexpr Size sizes[] = {{"124M", 124439808}, {"268M", 268435456}, {"1e9", 1000000000}};

/// The best of the copies is what everything is compared with.
template <int Packs>
void copy_bench(CudaBench& bench, Report& report, const Size& size, double& best) {
  bench.reset();
  const cuda::CopyPiece piece{bench.filled<float>(size.count, 1), bench.array<float>(size.count),
                              size.count, 0};
  const double ms =
      bench.milliseconds([&] { cuda::Copy<float, float, Packs>::one(piece, bench.native()); });
  report.add("copy fp32, packs " + std::to_string(Packs), size.name, 8 * size.count, ms);
  best = std::max(best, static_cast<double>(8 * size.count) * 1e-9 / ms);
}

double best_copy(CudaBench& bench, Report& report) {
  double best = 0;
  for (const Size& size : sizes) {
    copy_bench<1>(bench, report, size, best);
    copy_bench<2>(bench, report, size, best);
    copy_bench<4>(bench, report, size, best);
  }
  return best;
}

template <class From, class To>
void cast_bench(CudaBench& bench, Report& report, const char* name, const Size& size) {
  bench.reset();
  const From* source = bench.filled<From>(size.count, 1);
  To* destination = bench.array<To>(size.count);
  report.add(name, size.name, size.count * Bytes{sizeof(From) + sizeof(To)},
             bench.milliseconds([&] {
               bench.kernels().cast(source, dtype_of<From>, destination, dtype_of<To>, size.count,
                                    *bench.stream);
             }));
}

template <class From, class To, int Packs>
void cast_variant(CudaBench& bench, Report& report, const char* name, const Size& size) {
  bench.reset();
  const cuda::CopyPiece piece{bench.filled<From>(size.count, 1), bench.array<To>(size.count),
                              size.count, 0};
  report.add(std::string(name) + ", packs " + std::to_string(Packs), size.name,
             size.count * Bytes{sizeof(From) + sizeof(To)},
             bench.milliseconds([&] { cuda::Copy<From, To, Packs>::one(piece, bench.native()); }));
}

template <class Element>
void norm_bench(CudaBench& bench, Report& report, const char* name, const Size& size) {
  bench.reset();
  const Element* gradient = bench.filled<Element>(size.count, 1);
  double* value = bench.array<double>(1);
  const std::vector<NormNode> node{{0, size.count, 30}};
  report.add(name, size.name, size.count * Bytes{sizeof(Element)}, bench.milliseconds([&] {
    bench.kernels().square_sums(gradient, dtype_of<Element>, node, value, *bench.stream);
  }));
}

template <class From, class To>
void list_bench(CudaBench& bench, Report& report, const std::string& pair, const char* list,
                const std::vector<Elements>& tensors) {
  bench.reset();
  std::vector<FlattenPiece> pieces, targets;
  Elements total = 0;
  for (const Elements count : tensors) {
    pieces.push_back({bench.filled<From>(count, 1), total, count});
    targets.push_back({bench.array<To>(count), total, count});
    total += round_up(count, 128 / static_cast<Elements>(sizeof(To)));
  }
  To* flat = bench.array<To>(total);
  From* wide = bench.filled<From>(total, 2);
  const Elements count = std::accumulate(tensors.begin(), tensors.end(), Elements{0});
  const Bytes bytes = count * Bytes{sizeof(From) + sizeof(To)};
  report.add("flatten " + pair, list, bytes, bench.milliseconds([&] {
    bench.kernels().flatten(pieces, dtype_of<From>, flat, dtype_of<To>, *bench.stream);
  }));
  report.add("unflatten " + pair, list, bytes, bench.milliseconds([&] {
    bench.kernels().unflatten(targets, wide, dtype_of<From>, dtype_of<To>, *bench.stream);
  }));
}

template <class From, class To>
void reduce_bench(CudaBench& bench, Report& report, const char* pair, const Size& size, int terms) {
  bench.reset();
  std::vector<const void*> sources;
  for (int k = 0; k < terms; ++k)
    sources.push_back(bench.filled<From>(size.count, static_cast<std::uint64_t>(k)));
  To* sum = bench.array<To>(size.count);
  report.add("reduce " + std::to_string(terms) + ", " + pair, size.name,
             size.count * (terms * Bytes{sizeof(From)} + Bytes{sizeof(To)}),
             bench.milliseconds([&] {
               bench.kernels().reduce(sources, dtype_of<From>, sum, dtype_of<To>, size.count,
                                      *bench.stream);
             }));
}

void add_bench(CudaBench& bench, Report& report, const Size& size) {
  bench.reset();
  const Bf16* addend = bench.filled<Bf16>(size.count, 1);
  float* sum = bench.filled<float>(size.count, 2);
  report.add("add bf16 to fp32", size.name, 10 * size.count, bench.milliseconds([&] {
    bench.kernels().add(addend, DType::BFloat16, sum, DType::Float32, size.count, *bench.stream);
  }));
}

/// Calls that are all latency: milliseconds are what counts.
void small_bench(CudaBench& bench, Report& report) {
  bench.reset();
  auto* control = bench.array<StepControl>(1);
  auto* times = bench.array<std::int64_t>(64);
  double* values = bench.filled<double>(300, 1);
  bench.kernels().start_control(*control, LossScaler::constant(1), *bench.stream);
  ConcludeArguments arguments{};
  arguments.control = control;
  arguments.settings.max_grad_norm = 1;
  arguments.measure = values;
  arguments.divisor = 1;
  arguments.times = times;
  arguments.flats = 64;
  report.add("conclude, 64 flats", "small", 0,
             bench.milliseconds([&] { bench.kernels().conclude(arguments, *bench.stream); }));
  std::vector<NormAdd> adds;
  for (int step = 1; step < 256; step *= 2)
    for (int k = 0; k + step < 256; k += 2 * step) adds.push_back({k, k + step});
  report.add("merge 256 nodes", "small", 0,
             bench.milliseconds([&] { bench.kernels().add_nodes(adds, values, *bench.stream); }));
  const Float8E4M3* bytes = bench.filled<Float8E4M3>(32, 1);
  const std::vector<NormNode> node{{0, 32, 5}};
  report.add("norm of 32 elements", "small", 0, bench.milliseconds([&] {
    bench.kernels().square_sums(bytes, DType::Float8E4M3, node, values, *bench.stream);
  }));
}

using Fp32 = StepTypes<float, float, float>;
using Fp32WithCopy = StepTypes<float, float, float, Bf16>;
using Mixed = StepTypes<float, Bf16, float, Bf16>;
using PureBf16 = StepTypes<Bf16, Bf16, Bf16>;
using Stochastic = StepTypes<Bf16, float, Bf16, NoCopy, true>;
using StochasticWide = StepTypes<Bf16, float, float, NoCopy, true>;
using StochasticPure = StepTypes<Bf16, Bf16, Bf16, NoCopy, true>;

void step_benches(CudaBench& bench, Report& report, const Size& size) {
  const AdamW adamw{.lr = 1e-4};
  step_bench<AdamW, Fp32>(bench, report, "adamw fp32", size, adamw);
  const std::vector<Elements> halves{0, size.count / 256 * 128};
  const std::vector<Elements> biases{0, size.count / 1024 * 1023};
  step_bench<AdamW, Fp32>(bench, report, "adamw fp32, 2 groups", size, adamw, halves);
  step_bench<AdamW, Fp32>(bench, report, "adamw fp32, 2 groups, 2 launches", size, adamw, halves,
                          false);
  step_bench<AdamW, Fp32>(bench, report, "adamw fp32, a small second group", size, adamw, biases);
  step_bench<AdamW, Mixed>(bench, report, "adamw fp32, bf16 gradient, bf16 copy", size, adamw);
  step_bench<AdamW, Fp32WithCopy>(bench, report, "adamw fp32, bf16 copy", size, adamw);
  step_bench<AdamW, PureBf16>(bench, report, "adamw bf16", size, adamw);
  step_bench<AdamW, Stochastic>(bench, report, "adamw bf16 stochastic, fp32 gradient", size, adamw);
  step_bench<AdamW, StochasticWide>(bench, report, "adamw bf16 stochastic, fp32 gradient and state",
                                    size, adamw);
  step_bench<AdamW, StochasticPure>(bench, report, "adamw bf16 stochastic", size, adamw);
  step_bench<SGD, Fp32>(bench, report, "sgd momentum fp32", size, SGD{.lr = 1e-4, .momentum = 0.9});
  step_bench<Lion, Fp32>(bench, report, "lion fp32", size, Lion{});
  step_bench<Adagrad, Fp32>(bench, report, "adagrad fp32", size, Adagrad{});
  step_bench<Adam, Fp32>(bench, report, "adam fp32", size, Adam{});
  step_bench<AMSGrad, Fp32>(bench, report, "amsgrad fp32", size, AMSGrad{});
  step_bench<NAdam, Fp32>(bench, report, "nadam fp32", size, NAdam{});
  step_bench<RMSProp, Fp32>(bench, report, "rmsprop fp32", size, RMSProp{});
}

void variants(CudaBench& bench, Report& report, const Size& size) {
  cast_variant<float, Bf16, 1>(bench, report, "cast fp32 to bf16", size);
  cast_variant<float, Bf16, 2>(bench, report, "cast fp32 to bf16", size);
  cast_variant<float, Bf16, 4>(bench, report, "cast fp32 to bf16", size);
  cast_variant<Bf16, float, 1>(bench, report, "cast bf16 to fp32", size);
  cast_variant<Bf16, float, 2>(bench, report, "cast bf16 to fp32", size);
  cast_variant<Bf16, float, 4>(bench, report, "cast bf16 to fp32", size);
  step_variant<Fp32, 4, 5>(bench, report, "adamw fp32", size);
  step_variant<PureBf16, 4, 6>(bench, report, "adamw bf16", size);
  step_variant<Stochastic, 4, 5>(bench, report, "adamw bf16 stochastic, fp32 gradient", size);
  step_variant<StochasticPure, 4, 5>(bench, report, "adamw bf16 stochastic", size);
  step_variant<StochasticPure, 8, 3>(bench, report, "adamw bf16 stochastic", size);
}

void run(bool json, bool with_variants) {
  CudaBench bench(Bytes{20} << 30);
  Report report(json);
  report.set_copy(best_copy(bench, report));
  for (const Size& size : sizes) {
    cast_bench<float, Bf16>(bench, report, "cast fp32 to bf16", size);
    cast_bench<Bf16, float>(bench, report, "cast bf16 to fp32", size);
    norm_bench<float>(bench, report, "norm fp32", size);
    norm_bench<Bf16>(bench, report, "norm bf16", size);
    step_benches(bench, report, size);
    if (with_variants) variants(bench, report, size);
  }
  for (const auto& [name, tensors] :
       {std::pair{"gpt2-148", gpt2(12, 768)}, std::pair{"gpt2-292", gpt2(24, 1600)}}) {
    list_bench<float, float>(bench, report, "fp32", name, tensors);
    list_bench<float, Bf16>(bench, report, "fp32 to bf16", name, tensors);
    list_bench<Bf16, Bf16>(bench, report, "bf16", name, tensors);
  }
  for (const int terms : {2, 4, 8})
    reduce_bench<Bf16, float>(bench, report, "bf16 to fp32", sizes[1], terms);
  reduce_bench<float, float>(bench, report, "fp32", sizes[1], 4);
  add_bench(bench, report, sizes[1]);
  small_bench(bench, report);
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  bool json = false, variants = false;
  for (int i = 1; i < argc; ++i) {
    json = json || std::strcmp(argv[i], "--json") == 0;
    variants = variants || std::strcmp(argv[i], "--variants") == 0;
  }
  if (flatshard::cuda_device_count() == 0) {
    std::puts("skipped: this process can use no CUDA device");
    return 77;
  }
  flatshard_bench::run(json, variants);
  return 0;
}
