// Models, requests and options for tests of the Plan.
#pragma once

#include <flatshard/core/error.hpp>
#include <flatshard/sharder/plan.hpp>

#include <array>
#include <string>

#include "../../property/cases.hpp"

namespace flatshard_test {

using namespace flatshard;

template <class Traits>
struct Named {
  const char* name;
  Traits traits;
};

inline constexpr std::array<Named<StrategyTraits>, 7> strategies{{
    {"NoShard", strategy_traits<strategy::NoShard>()},
    {"ShardOptimizer", strategy_traits<strategy::ShardOptimizer>()},
    {"ShardGradOp", strategy_traits<strategy::ShardGradOp>()},
    {"FullShard", strategy_traits<strategy::FullShard>()},
    {"HybridShard", strategy_traits<strategy::HybridShard>()},
    {"HybridShardGradOp", strategy_traits<strategy::HybridShardGradOp>()},
    {"FullShardSecondary", strategy_traits<strategy::FullShardSecondary>()},
}};

inline constexpr std::array<Named<PrecisionTraits>, 10> precisions{{
    {"Full<double>", precision_traits<precision::Full<double>>()},
    {"Full<float>", precision_traits<precision::Full<float>>()},
    {"Full<Bf16>", precision_traits<precision::Full<Bf16>>()},
    {"Full<Half, float, float>", precision_traits<precision::Full<Half, float, float>>()},
    {"Bf16Mixed", precision_traits<precision::Bf16Mixed>()},
    {"Bf16MixedReducing<Bf16>", precision_traits<precision::Bf16MixedReducing<Bf16>>()},
    {"DeepSpeedBf16", precision_traits<precision::DeepSpeedBf16>()},
    {"Fp16Mixed", precision_traits<precision::Fp16Mixed>()},
    {"Bf16Stochastic", precision_traits<precision::Bf16Stochastic>()},
    {"Bf16StochasticState<Bf16>", precision_traits<precision::Bf16StochasticState<Bf16>>()},
}};

template <class Strategy, class Precision = precision::Full<float>>
PlanRequest request_for(int world, int states = 2) {
  return {strategy_traits<Strategy>(), precision_traits<Precision>(), {}, world, states, true};
}

template <class Strategy, class Precision = precision::Full<float>>
Plan plan_for(const Model& model, int world, const Options& options = {}) {
  return make_plan(model, request_for<Strategy, Precision>(world), options);
}

/// What make_plan says when it refuses; "" when it does not.
inline std::string refusal(const Model& model, const PlanRequest& request, const Options& options) {
  try {
    make_plan(model, request, options);
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

inline bool says(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (message.find(word) == std::string::npos) return false;
  return true;
}

/// `modules` modules h.0, h.1, ... of one parameter "w" of that shape each.
inline Model equal_modules(int modules, const Shape& shape) {
  Model model;
  for (int index = 0; index < modules; ++index)
    model.module("h." + std::to_string(index)).add("w", shape);
  return model;
}

inline bool one_in(Random& random, int count) { return between(random, 1, count) == 1; }

inline Shape random_shape(Random& random) {
  switch (between(random, 0, 4)) {
    case 0:
      return {};
    case 1:
      return {0, between(random, 1, 3)};
    case 2:
      return {1};
    case 3:
      return {between(random, 2, 700)};
    default:
      return {between(random, 1, 40), between(random, 1, 40)};
  }
}

inline ParameterOptions random_parameter(Random& random) {
  constexpr std::array dtypes{DType::Float64, DType::Float32, DType::BFloat16, DType::Float16};
  ParameterOptions options;
  options.requires_grad = !one_in(random, 5);
  if (one_in(random, 4)) options.dtype = dtypes[static_cast<std::size_t>(between(random, 0, 3))];
  options.group = static_cast<int>(between(random, 0, 2));
  return options;
}

/// Up to six modules with ties, frozen parameters, dtypes of their own, hyper-parameter groups.
inline Model random_model(Random& random) {
  Model model;
  std::vector<Parameter> made;
  const auto modules = between(random, 1, 6);
  for (int index = 0; index < modules; ++index) {
    const std::string name = index == 0 && one_in(random, 2) ? "" : "h." + std::to_string(index);
    Module module = model.module(name, {.uses = one_in(random, 6) ? 2 : 1,
                                        .backward_overwrites = one_in(random, 2),
                                        .skip_when_unused = one_in(random, 5)});
    for (auto count = between(random, 0, 4); count > 0; --count)
      made.push_back(module.add("p" + std::to_string(made.size()), random_shape(random),
                                random_parameter(random)));
    if (!made.empty() && one_in(random, 4))
      module.tie("tied", made[static_cast<std::size_t>(random() % made.size())]);
    if (one_in(random, 4)) module.add_buffer("mask", random_shape(random), DType::Int64);
  }
  return model;
}

inline WrapPolicy random_wrap(Random& random) {
  const auto kind = between(random, 0, 3);
  if (kind == 0) return wrap::each_module();
  if (kind == 1) return wrap::all_in_one();
  if (kind == 2) return wrap::up_to(between(random, 1, 2000));
  return [seed = random()](const Model& model) {
    Random own{seed};
    std::vector<int> labels(model.modules().size());
    for (int& label : labels) label = static_cast<int>(own() % labels.size());
    return labels;
  };
}

inline int random_divisor(Random& random, int world) {
  int divisor = 0;
  while (divisor == 0 || world % divisor != 0)
    divisor = static_cast<int>(between(random, 1, world));
  return divisor;
}

inline Options random_options(Random& random, const StrategyTraits& strategy, int world) {
  Options options;
  options.groups = {{}, {0.1, true}, {1.0, false}};
  options.wrap = random_wrap(random);
  options.shard_group = one_in(random, 2) ? 0 : random_divisor(random, world);
  options.max_micro_steps = static_cast<int>(between(random, 1, 9));
  options.accumulation = one_in(random, 2) ? Accumulation::Tree : Accumulation::Running;
  const auto moments = strategy.scope == ShardScope::Group ? 3 : 2;
  if (!one_in(random, 3))
    options.reduce_moment = static_cast<ReduceMoment>(between(random, 0, moments - 1));
  options.prefetch_forward = static_cast<int>(between(random, 0, 3));
  options.prefetch_backward = static_cast<BackwardPrefetch>(between(random, 0, 2));
  options.persistence_threshold = one_in(random, 2) ? 0 : between(random, 1, 800);
  return options;
}

/// A model, who plans it, and its Plan.
struct PlanCase {
  Model model;
  PlanRequest request;
  Options options;
  Plan plan;
};

inline PlanCase random_case(Random& random, const StrategyTraits& strategy,
                            const PrecisionTraits& precision) {
  const int world = one_in(random, 12) ? 3000 : static_cast<int>(between(random, 1, 9));
  PlanCase made{random_model(random),
                {strategy, precision, {}, world, static_cast<int>(between(random, 0, 3)), true},
                random_options(random, strategy, world),
                {}};
  made.plan = make_plan(made.model, made.request, made.options);
  return made;
}

/// Calls check(const PlanCase&) for random models under every strategy and precision.
template <class Check>
void for_random_cases(std::uint64_t stream, Check&& check) {
  Random random = generator(stream);
  for (const auto& strategy : strategies)
    for (const auto& precision : precisions) {
      INFO(strategy.name << " " << precision.name);
      for (int repeat = 0; repeat < 3; ++repeat)
        check(random_case(random, strategy.traits, precision.traits));
    }
}

}  // namespace flatshard_test
