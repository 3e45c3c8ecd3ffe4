// What may not be combined. One static_assert a rule: what, why, how to fix.
#pragma once

#include <flatshard/ops/step_rows.hpp>
#include <flatshard/policy/offload.hpp>
#include <flatshard/policy/precision.hpp>
#include <flatshard/policy/strategy.hpp>

namespace flatshard {

namespace detail {

constexpr bool can_hold(DType wide, DType narrow) {
  return wide == narrow || size_of(wide) > size_of(narrow);
}

template <class... Types>
constexpr bool is_built(const StepRow& row, StepRowList<Types...>) {
  return ((Types::row() == row) || ...);
}

}  // namespace detail

/// Compiles only for policies that make sense together; Sharder instantiates it.
template <StrategyPolicy Strategy, PrecisionPolicy Precision, OffloadPolicy Offload>
struct CheckedRules {
  /// The precision policy's answers.
  static constexpr PrecisionTraits roles = precision_traits<Precision>();

  static_assert(Strategy::scope != ShardScope::Nobody || !Strategy::gradients_sharded,
                "flatshard: the strategy shards gradients over nobody. Why: a gradient shard needs "
                "ranks that own the other shards. Fix: set scope to ShardScope::World or "
                "ShardScope::Group, or gradients_sharded to false.");
  static_assert(Strategy::scope != ShardScope::Nobody ||
                    Strategy::parameters_whole == ParametersWhole::Always,
                "flatshard: the strategy releases parameters that nobody else holds. Why: they "
                "could never be gathered again. Fix: set scope to ShardScope::World or "
                "ShardScope::Group, or parameters_whole to ParametersWhole::Always.");
  static_assert(!Strategy::secondary_shard ||
                    (Strategy::scope == ShardScope::World &&
                     Strategy::parameters_whole == ParametersWhole::PerUse),
                "flatshard: a secondary shard without a second gather. Why: it only serves "
                "parameters that are sharded over the world and gathered per use. Fix: set scope "
                "to ShardScope::World and parameters_whole to ParametersWhole::PerUse, or "
                "secondary_shard to false.");
  static_assert(detail::can_hold(roles.master, roles.compute),
                "flatshard: the master dtype is narrower than the compute dtype. Why: the compute "
                "copy is made from the master and would only pretend to its precision. Fix: choose "
                "a master at least as wide as compute.");
  static_assert(
      detail::can_hold(roles.accumulate, roles.reduce),
      "flatshard: gradients accumulate in a narrower dtype than they are reduced to. Why: "
      "each micro-step would lose bits that the reduction paid for. Fix: choose "
      "accumulate at least as wide as reduce.");
  static_assert(
      roles.rounding == Rounding::Nearest || roles.master == DType::BFloat16,
      "flatshard: stochastic rounding without a bf16 master. Why: it exists to keep small "
      "updates of bf16 weights; wider masters need none. Fix: use Rounding::Nearest or "
      "a Bf16 master.");
  static_assert(roles.loss_scaling == LossScaling::Off || roles.compute == DType::Float16,
                "flatshard: loss scaling without fp16 compute. Why: it exists to lift small fp16 "
                "gradients; other dtypes have the range. Fix: use LossScaling::Off or Half "
                "as compute.");
  static_assert(detail::is_built(step_row(roles), StepRows{}),
                "flatshard: no optimizer step is built for these dtypes. Why: steps are compiled "
                "for the rows of ops/step_rows.hpp only. Fix: choose master, accumulate, state and "
                "compute as in one of its rows.");
  static constexpr bool value = true;  // what a static_assert reads
};

}  // namespace flatshard
