#include <flatshard/policy/strategy.hpp>

#include <doctest/doctest.h>

#include <type_traits>

namespace flatshard {

namespace hand_made {

struct Own {
  static constexpr ShardScope scope = ShardScope::Group;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::Always;
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = false;
};

// A strategy with one constant missing or of another type.
struct NoScope {
  static constexpr ParametersWhole parameters_whole = ParametersWhole::Always;
  static constexpr bool gradients_sharded = false;
  static constexpr bool secondary_shard = false;
};
struct NumberAsScope : NoScope {
  static constexpr int scope = 0;
};
struct NoMoment {
  static constexpr ShardScope scope = ShardScope::Nobody;
  static constexpr bool gradients_sharded = false;
  static constexpr bool secondary_shard = false;
};
struct YesNoMoment : NoMoment {
  static constexpr bool parameters_whole = true;
};
struct NoGradients {
  static constexpr ShardScope scope = ShardScope::Nobody;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::Always;
  static constexpr bool secondary_shard = false;
};
struct NumberOfGradients : NoGradients {
  static constexpr int gradients_sharded = 1;
};
struct NoSecondary {
  static constexpr ShardScope scope = ShardScope::Nobody;
  static constexpr ParametersWhole parameters_whole = ParametersWhole::Always;
  static constexpr bool gradients_sharded = false;
};
struct ChangingSecondary : NoSecondary {
  static inline bool secondary_shard = false;
};

}  // namespace hand_made

namespace {

using namespace hand_made;

constexpr auto nobody = ShardScope::Nobody;
constexpr auto group = ShardScope::Group;
constexpr auto world = ShardScope::World;
constexpr auto always = ParametersWhole::Always;
constexpr auto until_backward = ParametersWhole::UntilBackward;
constexpr auto per_use = ParametersWhole::PerUse;

template <class... Policies>
constexpr bool none_is_a_strategy = (!StrategyPolicy<Policies> && ...);
template <class... Policies>
constexpr bool all_are_empty = (std::is_empty_v<Policies> && ...);

}  // namespace

TEST_CASE("each strategy answers as the strategy table says") {
  using namespace strategy;
  CHECK(strategy_traits<NoShard>() == StrategyTraits{nobody, always, false, false});
  CHECK(strategy_traits<ShardOptimizer>() == StrategyTraits{world, always, false, false});
  CHECK(strategy_traits<ShardGradOp>() == StrategyTraits{world, until_backward, true, false});
  CHECK(strategy_traits<FullShard>() == StrategyTraits{world, per_use, true, false});
  CHECK(strategy_traits<HybridShard>() == StrategyTraits{group, per_use, true, false});
  CHECK(strategy_traits<HybridShardGradOp>() == StrategyTraits{group, until_backward, true, false});
  CHECK(strategy_traits<FullShardSecondary>() == StrategyTraits{world, per_use, true, true});
  CHECK(all_are_empty<NoShard, ShardOptimizer, ShardGradOp, FullShard, HybridShard,
                      HybridShardGradOp, FullShardSecondary>);
}

TEST_CASE("a hand-made struct of the four constants is a strategy") {
  CHECK(StrategyPolicy<Own>);
  CHECK(strategy_traits<Own>() == StrategyTraits{group, always, true, false});
}

TEST_CASE("what misses an answer, or gives one of another type, is none") {
  CHECK_FALSE(SaysOverWhomItShards<NoScope>);
  CHECK_FALSE(SaysOverWhomItShards<NumberAsScope>);
  CHECK_FALSE(SaysWhenParametersAreWhole<NoMoment>);
  CHECK_FALSE(SaysWhenParametersAreWhole<YesNoMoment>);
  CHECK_FALSE(SaysWhetherGradientsAreSharded<NoGradients>);
  CHECK_FALSE(SaysWhetherGradientsAreSharded<NumberOfGradients>);
  CHECK_FALSE(SaysWhetherItKeepsASecondaryShard<NoSecondary>);
  CHECK_FALSE(SaysWhetherItKeepsASecondaryShard<ChangingSecondary>);
  CHECK(none_is_a_strategy<NoScope, NumberAsScope, NoMoment, YesNoMoment, NoGradients,
                           NumberOfGradients, NoSecondary, ChangingSecondary, int>);
}

}  // namespace flatshard
