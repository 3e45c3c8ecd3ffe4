// The same policies under the names of FSDP and DeepSpeed.
#pragma once

#include <flatshard/policy/offload.hpp>
#include <flatshard/policy/strategy.hpp>

#include <type_traits>

namespace flatshard {

namespace zero {

namespace detail {
template <int number>
struct Stage;
template <>
struct Stage<0> {
  using type = strategy::NoShard;
};
template <>
struct Stage<1> {
  using type = strategy::ShardOptimizer;
};
template <>
struct Stage<2> {
  using type = strategy::ShardGradOp;
};
template <>
struct Stage<3> {
  using type = strategy::FullShard;
};
}  // namespace detail

/// DeepSpeed's stages. Stage 2 here also shards the parameters outside computation.
template <int number>
using stage = typename detail::Stage<number>::type;
using MiCS = strategy::HybridShard;        // shards within a group
using hpZ = strategy::FullShardSecondary;  // ZeRO++: a second shard within a group
/// ZeRO-Offload: masters, states and gradients on the host, which makes the step.
using Offload = offload::Place<offload::Device, offload::Cpu>;

}  // namespace zero

namespace fsdp {

using NO_SHARD = strategy::NoShard;           // every rank holds everything
using SHARD_GRAD_OP = strategy::ShardGradOp;  // parameters gathered once a step
using FULL_SHARD = strategy::FullShard;       // parameters gathered per use
using HYBRID_SHARD = strategy::HybridShard;   // FULL_SHARD within a group
/// SHARD_GRAD_OP within a group.
using HYBRID_SHARD_ZERO2 = strategy::HybridShardGradOp;
using CPUOffload = offload::All<offload::Cpu>;  // all or nothing

}  // namespace fsdp

static_assert(std::is_same_v<zero::stage<0>, fsdp::NO_SHARD>);
static_assert(std::is_same_v<zero::stage<2>, fsdp::SHARD_GRAD_OP>);
static_assert(std::is_same_v<zero::stage<3>, fsdp::FULL_SHARD>);
static_assert(std::is_same_v<zero::MiCS, fsdp::HYBRID_SHARD>);
static_assert(!std::is_same_v<zero::stage<1>, zero::stage<0>>);
static_assert(!std::is_same_v<zero::hpZ, zero::MiCS>);
static_assert(offload_traits<fsdp::CPUOffload>() != offload_traits<zero::Offload>());

}  // namespace flatshard
