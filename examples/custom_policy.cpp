// Your own strategy, precision and optimizer: three small structs. The program trains with them on
// 4 ranks and shows that the weights are, bit for bit, those of an unsharded run.
#include <flatshard/flatshard.hpp>

#include <cstdio>
#include <cstring>
#include <vector>

#include "linear.hpp"

namespace fsh = flatshard;

/// ZeRO-2 as its paper has it: parameters stay whole, gradients and optimizer state are sharded.
/// (strategy::ShardGradOp also shards parameters between steps, as FSDP does.)
struct ZeroTwo {
  static constexpr fsh::ShardScope scope = fsh::ShardScope::World;
  static constexpr fsh::ParametersWhole parameters_whole = fsh::ParametersWhole::Always;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};
static_assert(fsh::StrategyPolicy<ZeroTwo>);

/// fp16 for compute and wire, but gradients reduced to fp32, and a loss scale that never moves.
struct HalfCompute {
  using master = float;
  using compute = fsh::Half;
  using reduce = float;
  using accumulate = float;
  using state = float;
  static constexpr fsh::Rounding rounding = fsh::Rounding::Nearest;
  static constexpr fsh::LossScaling loss_scaling = fsh::LossScaling::Static;
};
static_assert(fsh::PrecisionPolicy<HalfCompute>);

/// Gradient descent with momentum and decoupled weight decay:
///   v = momentum v + g;  p = (1 - lr weight_decay) p - lr v
/// Members named lr and weight_decay work with parameter groups.
struct Descent {
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;

  static constexpr std::string_view name = "descent";
  static constexpr std::array<std::string_view, 1> state_names{"velocity"};

  template <class Real>
  struct Coefficients {
    Real lr, momentum, decay;
  };
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t) const {
    return {static_cast<Real>(lr), static_cast<Real>(momentum),
            static_cast<Real>(lr * weight_decay)};
  }
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    states[0] = fsh::exact::fma(with.momentum, states[0], gradient);
    const Real decayed = fsh::exact::fma(-with.decay, parameter, parameter);
    parameter = fsh::exact::fma(-with.lr, states[0], decayed);
  }
};
static_assert(fsh::ElementwiseOptimizer<Descent>);

struct Result {
  float first_loss = 0, last_loss = 0;
  std::vector<float> weights;
};

template <class Strategy>
Result train() {
  Result result;
  fsh::ThreadWorld{4}.run([&](fsh::Communicator& comm) {
    fsh::Model model;
    auto layer = model.module("layer");
    auto weight = layer.add("weight", {outputs, inputs});

    fsh::Options options;
    options.loss_scale = fsh::ScaleSettings{.initial = 1024};
    fsh::Sharder<Strategy, HalfCompute, fsh::offload::None> trainer{comm, model, Descent{},
                                                                    options};
    trainer.initialize(fsh::init::normal{0.02, /*seed=*/1});

    float loss = 0, first_loss = 0;
    for (int step = 0; step < 200; ++step) {
      Batch batch = make_batch(step, comm.rank());
      trainer.forward(layer, [&](auto weights) { loss = forward(weights[weight].data(), batch); });
      if (step == 0) first_loss = loss;
      trainer.backward(layer, [&](auto, auto grads) {
        backward(grads[weight].data(), batch, *trainer.loss_scale().data());
      });
      trainer.step();
    }
    trainer.summon_full(layer, [&](auto full) {  // whole masters, on every rank
      const std::span<const float> values = full[weight].flat();
      if (comm.rank() == 0) result = {first_loss, loss, {values.begin(), values.end()}};
    });
  });
  return result;
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

int main() {
  const Result sharded = train<ZeroTwo>();
  const Result whole = train<fsh::strategy::NoShard>();
  const bool learned = sharded.last_loss < sharded.first_loss / 100;
  const bool equal = same_bits(sharded.weights, whole.weights);
  std::printf("loss %.6f -> %.6f\n", static_cast<double>(sharded.first_loss),
              static_cast<double>(sharded.last_loss));
  std::printf("weights of ZeroTwo and NoShard: %s\n", equal ? "the same bits" : "different");
  return learned && equal ? 0 : 1;
}
