// A Sharder behind one type, so that a test can sweep strategies and precisions at run time.
#pragma once

#include <flatshard/ops/optimizer.hpp>
#include <flatshard/sharder/sharder.hpp>

#include <array>
#include <memory>
#include <string_view>
#include <type_traits>

namespace sharder_test {

using namespace flatshard;  // NOLINT: tests only

enum class StrategyName {
  NoShard,
  ShardOptimizer,
  ShardGradOp,
  FullShard,
  HybridShard,
  HybridShardGradOp,
  FullShardSecondary
};
inline constexpr std::array all_strategies{
    StrategyName::NoShard,           StrategyName::ShardOptimizer, StrategyName::ShardGradOp,
    StrategyName::FullShard,         StrategyName::HybridShard,    StrategyName::HybridShardGradOp,
    StrategyName::FullShardSecondary};
std::string_view name_of(StrategyName strategy);
constexpr bool is_hybrid(StrategyName strategy) {
  return strategy == StrategyName::HybridShard || strategy == StrategyName::HybridShardGradOp;
}
/// Options::shard_group matters.
constexpr bool has_groups(StrategyName strategy) {
  return is_hybrid(strategy) || strategy == StrategyName::FullShardSecondary;
}

enum class PrecisionName {
  Fp64,
  Fp32,
  Bf16,
  Fp16,
  Bf16Wide,  // state and accumulation fp32
  Bf16Mixed,
  DeepSpeedBf16,
  Fp16Torch,
  Fp16DeepSpeed,
  Fp16Static,
  Bf16Stochastic,
  Bf16StochasticState
};
inline constexpr std::array all_precisions{
    PrecisionName::Fp64,           PrecisionName::Fp32,
    PrecisionName::Bf16,           PrecisionName::Fp16,
    PrecisionName::Bf16Wide,       PrecisionName::Bf16Mixed,
    PrecisionName::DeepSpeedBf16,  PrecisionName::Fp16Torch,
    PrecisionName::Fp16DeepSpeed,  PrecisionName::Fp16Static,
    PrecisionName::Bf16Stochastic, PrecisionName::Bf16StochasticState};
std::string_view name_of(PrecisionName precision);
constexpr bool scales_loss(PrecisionName precision) {
  return precision == PrecisionName::Fp16Torch || precision == PrecisionName::Fp16DeepSpeed ||
         precision == PrecisionName::Fp16Static;
}

/// Elements of any floating dtype.
struct Values {
  std::byte* data = nullptr;
  DType dtype = DType::Float32;
  Elements count = 0;

  double get(Elements index) const;
  void set(Elements index, double value) const;  // rounded once
};

/// What a user's function sees.
class Views {
 public:
  virtual ~Views() = default;
  virtual Values weights(Parameter parameter) const = 0;
  virtual Values gradients(Parameter parameter) const = 0;
};

/// Non-owning function of views: std::function may allocate, which some tests count.
class Body {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, Body>)
      Body(Function&& function)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&function))),
        call_([](void* object, const Views& views) {
          (*static_cast<std::remove_reference_t<Function>*>(object))(views);
        }) {}
  void operator()(const Views& views) const { call_(object_, views); }

 private:
  void* object_;
  void (*call_)(void*, const Views&);
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual Engine& engine() = 0;
  virtual Rank rank() const = 0;
  const Plan& plan() { return engine().plan(); }
  virtual void initialize(const Initializer& initializer) = 0;
  virtual void micro_step(bool last) = 0;
  virtual Elements micro_batch(int index, int count) = 0;
  virtual void forward(const Module& module, Body body) = 0;
  virtual void backward(const Module& module, Body body) = 0;
  virtual void evaluate(const Module& module, Body body) = 0;
  virtual PendingReport step(const StepOptions& options = {}) = 0;
  virtual void discard_step() = 0;
  virtual const float* loss_scale() = 0;
  /// weights() of the views are the summoned values.
  virtual void summon_full(const Module& module, Body body, bool write_back = false) = 0;
};

/// A Sharder<strategy, precision, offload::None>.
std::unique_ptr<Trainer> make_trainer(StrategyName strategy, PrecisionName precision,
                                      Communicator& communicator, const Model& model,
                                      const Optimizer& optimizer, const Options& options);

}  // namespace sharder_test
