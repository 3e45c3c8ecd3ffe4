// The optimizer of custom_optimizer.hpp in every strategy, through a checkpoint, and on a GPU where
// there is one. Every run must leave the same bits.
#include "custom_optimizer.hpp"

#include <flatshard/flatshard.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "linear.hpp"

namespace fsh = flatshard;

namespace {

constexpr int steps = 200;

struct Run {
  int from = 0, to = steps;          // steps
  std::string load = {}, save = {};  // folders of checkpoints; empty: none
};

struct Result {
  float first_loss = 0, last_loss = 0;
  std::vector<float> weights;
};

/// Copies between the device and the host (on a host device, within it) and waits.
template <class Trainer, class Element>
void copy(Trainer& trainer, const Element* source, Element* destination, std::size_t count) {
  fsh::Stream& stream = trainer.engine().compute_stream();
  trainer.engine().device().copy(source, destination,
                                 static_cast<fsh::Bytes>(count * sizeof(Element)), stream);
  stream.synchronize();
}

/// A rank's training. The model is a loop on the host, wherever the weights lie.
template <class Strategy>
Result train(fsh::Communicator& comm, const Run& run) {
  fsh::Model model;
  auto layer = model.module("layer");
  auto weight = layer.add("weight", {outputs, inputs});
  fsh::Sharder<Strategy, fsh::precision::Bf16Mixed> trainer{comm, model, LaProp{.lr = 4e-3}};
  trainer.initialize(fsh::init::normal{0.02, /*seed=*/1});
  if (!run.load.empty()) load_checkpoint(trainer, run.load);

  Result result;
  std::vector<fsh::Bf16> values(outputs * inputs);
  for (int step = run.from; step < run.to; ++step) {
    Batch batch = make_batch(step, comm.rank());
    trainer.forward(layer, [&](auto weights) {
      copy(trainer, weights[weight].data(), values.data(), values.size());
      result.last_loss = forward(values.data(), batch);
    });
    if (step == run.from) result.first_loss = result.last_loss;
    trainer.backward(layer, [&](auto, auto grads) {
      std::vector<fsh::Bf16> gradients(values.size());
      backward(gradients.data(), batch);
      copy(trainer, gradients.data(), grads[weight].data(), gradients.size());
    });
    trainer.step();
  }
  if (!run.save.empty()) save_checkpoint(trainer, {.folder = run.save});
  trainer.summon_full(layer, [&](auto full) {  // whole masters, on every rank
    result.weights.resize(values.size());
    copy(trainer, full[weight].data(), result.weights.data(), values.size());
  });
  return result;
}

template <class Strategy>
Result on_four_ranks(const Run& run = {}) {
  Result result;
  fsh::ThreadWorld{4}.run([&](fsh::Communicator& comm) {
    Result own = train<Strategy>(comm, run);
    if (comm.rank() == 0) result = std::move(own);
  });
  return result;
}

/// Says whether the weights have the same bits.
bool agree(const char* name, const Result& result, const Result& expected) {
  const bool same = result.weights.size() == expected.weights.size() &&
                    std::memcmp(result.weights.data(), expected.weights.data(),
                                expected.weights.size() * sizeof(float)) == 0;
  std::printf("%-20s %s\n", name, same ? "the same bits" : "OTHER BITS");
  return same;
}

bool strategies_agree(const Result& expected) {
  namespace strategy = fsh::strategy;
  bool same = agree("ShardOptimizer", on_four_ranks<strategy::ShardOptimizer>(), expected);
  same &= agree("ShardGradOp", on_four_ranks<strategy::ShardGradOp>(), expected);
  same &= agree("FullShard", on_four_ranks<strategy::FullShard>(), expected);
  same &= agree("HybridShard", on_four_ranks<strategy::HybridShard>(), expected);
  same &= agree("HybridShardGradOp", on_four_ranks<strategy::HybridShardGradOp>(), expected);
  same &= agree("FullShardSecondary", on_four_ranks<strategy::FullShardSecondary>(), expected);
  return same;
}

/// Half of the steps, a checkpoint, and the other half under another strategy.
bool resumes(const Result& expected) {
  std::string folder = (std::filesystem::temp_directory_path() / "laprop-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return false;
  on_four_ranks<fsh::strategy::FullShard>({.to = steps / 2, .save = folder});
  const Result resumed = on_four_ranks<fsh::strategy::NoShard>({.from = steps / 2, .load = folder});
  std::filesystem::remove_all(folder);
  return agree("resumed", resumed, expected);
}

/// One rank on the host and one on a GPU.
bool gpu_agrees() {
  if (fsh::cuda_device_count() == 0) return true;
  fsh::CudaDevice gpu(0);
  fsh::HostDevice host;
  fsh::Solo on_gpu(gpu), on_host(host);
  using Whole = fsh::strategy::NoShard;
  return agree("GPU", train<Whole>(on_gpu, {}), train<Whole>(on_host, {}));
}

}  // namespace

int main() {
  const Result whole = on_four_ranks<fsh::strategy::NoShard>();
  std::printf("loss %.6f -> %.6f\n", static_cast<double>(whole.first_loss),
              static_cast<double>(whole.last_loss));
  const bool learned = whole.last_loss < whole.first_loss / 10;
  const bool strategies = strategies_agree(whole);
  const bool resumed = resumes(whole);
  const bool gpu = gpu_agrees();
  return learned && strategies && resumed && gpu ? 0 : 1;
}
