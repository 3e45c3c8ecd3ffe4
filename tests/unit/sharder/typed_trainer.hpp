// The one place where the tests' trainers meet the Sharder's types: included once per translation
// unit that instantiates precisions.
#pragma once

#include "trainer.hpp"

namespace sharder_test {

/// Calls function(Element{}) with the element type of a floating dtype.
template <class Function>
auto with_element(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::Float64:
      return function(double{});
    case DType::BFloat16:
      return function(Bf16{});
    case DType::Float16:
      return function(Half{});
    default:
      return function(float{});
  }
}

/// Through view[p] where the parameter has the policy's dtype, else through get<Element>(p).
template <class Policy, class View>
Values values_of(const View& view, Parameter parameter, DType dtype) {
  const auto erased = [dtype](auto tensor) {
    const void* data = tensor.data();
    return Values{static_cast<std::byte*>(const_cast<void*>(data)), dtype, tensor.numel()};
  };
  if (dtype == dtype_of<Policy>) return erased(view[parameter]);
  return with_element(
      dtype, [&](auto element) { return erased(view.template get<decltype(element)>(parameter)); });
}

template <class Compute>
class CallViews final : public Views {
 public:
  CallViews(const Engine& engine, const Weights<Compute>& weights,
            const Gradients<Compute>* gradients)
      : engine_(engine), weights_(weights), gradients_(gradients) {}
  Values weights(Parameter parameter) const override {
    return values_of<Compute>(weights_, parameter, engine_.compute_dtype(parameter.index));
  }
  Values gradients(Parameter parameter) const override {
    if (gradients_ == nullptr) throw UsageError("forward has no gradients");
    return values_of<Compute>(*gradients_, parameter, engine_.compute_dtype(parameter.index));
  }

 private:
  const Engine& engine_;
  const Weights<Compute>& weights_;
  const Gradients<Compute>* gradients_;
};

template <class Master>
class FullViews final : public Views {
 public:
  FullViews(const Engine& engine, const FullParameters<Master>& full)
      : engine_(engine), full_(full) {}
  Values weights(Parameter parameter) const override {
    return values_of<Master>(full_, parameter, engine_.master_dtype(parameter.index));
  }
  Values gradients(Parameter) const override { throw UsageError("summoned without gradients"); }

 private:
  const Engine& engine_;
  const FullParameters<Master>& full_;
};

template <class Strategy, class Precision>
class TypedTrainer final : public Trainer {
  using Type = Sharder<Strategy, Precision, offload::None>;
  using Compute = typename Type::compute_type;
  using Master = typename Type::master_type;

 public:
  TypedTrainer(Communicator& communicator, const Model& model, const Optimizer& optimizer,
               const Options& options)
      : rank_(communicator.rank()), sharder_(communicator, model, optimizer, options) {}
  Rank rank() const override { return rank_; }
  Engine& engine() override { return sharder_.engine(); }
  void initialize(const Initializer& initializer) override { sharder_.initialize(initializer); }
  void micro_step(bool last) override { sharder_.micro_step({.last = last}); }
  Elements micro_batch(int index, int count) override { return sharder_.micro_batch(index, count); }
  void forward(const Module& module, Body body) override {
    sharder_.forward(module, [&](const Weights<Compute>& weights) {
      body(CallViews<Compute>(engine(), weights, nullptr));
    });
  }
  void backward(const Module& module, Body body) override {
    sharder_.backward(module,
                      [&](const Weights<Compute>& weights, const Gradients<Compute>& gradients) {
                        body(CallViews<Compute>(engine(), weights, &gradients));
                      });
  }
  void evaluate(const Module& module, Body body) override {
    sharder_.evaluate(module, [&](const Weights<Compute>& weights) {
      body(CallViews<Compute>(engine(), weights, nullptr));
    });
  }
  PendingReport step(const StepOptions& options) override { return sharder_.step(options); }
  void discard_step() override { sharder_.discard_step(); }
  const float* loss_scale() override { return sharder_.loss_scale().data(); }
  void summon_full(const Module& module, Body body, bool write_back) override {
    sharder_.summon_full(
        module,
        [&](const FullParameters<Master>& full) { body(FullViews<Master>(engine(), full)); },
        write_back);
  }

 private:
  Rank rank_;
  Type sharder_;
};

template <class Strategy, class Precision>
std::unique_ptr<Trainer> make_typed(Communicator& communicator, const Model& model,
                                    const Optimizer& optimizer, const Options& options) {
  return std::make_unique<TypedTrainer<Strategy, Precision>>(communicator, model, optimizer,
                                                             options);
}

using Maker = std::unique_ptr<Trainer> (*)(Communicator&, const Model&, const Optimizer&,
                                           const Options&);

/// In the order of StrategyName.
template <class Precision>
inline constexpr std::array<Maker, 7> makers{make_typed<strategy::NoShard, Precision>,
                                             make_typed<strategy::ShardOptimizer, Precision>,
                                             make_typed<strategy::ShardGradOp, Precision>,
                                             make_typed<strategy::FullShard, Precision>,
                                             make_typed<strategy::HybridShard, Precision>,
                                             make_typed<strategy::HybridShardGradOp, Precision>,
                                             make_typed<strategy::FullShardSecondary, Precision>};

std::span<const Maker> full_makers(PrecisionName precision);   // empty: not a Full<T>
std::span<const Maker> mixed_makers(PrecisionName precision);  // empty: not a mixed precision

}  // namespace sharder_test
