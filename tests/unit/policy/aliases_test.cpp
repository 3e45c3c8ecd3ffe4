#include <flatshard/policy/aliases.hpp>

#include <doctest/doctest.h>

namespace flatshard {
namespace {

template <class Left, class Right>
constexpr bool same = std::is_same_v<Left, Right>;

}  // namespace

TEST_CASE("DeepSpeed's names") {
  CHECK(same<zero::stage<0>, strategy::NoShard>);
  CHECK(same<zero::stage<1>, strategy::ShardOptimizer>);
  CHECK(same<zero::stage<2>, strategy::ShardGradOp>);
  CHECK(same<zero::stage<3>, strategy::FullShard>);
  CHECK(same<zero::MiCS, strategy::HybridShard>);
  CHECK(same<zero::hpZ, strategy::FullShardSecondary>);
}

TEST_CASE("FSDP's names") {
  CHECK(same<fsdp::NO_SHARD, strategy::NoShard>);
  CHECK(same<fsdp::SHARD_GRAD_OP, strategy::ShardGradOp>);
  CHECK(same<fsdp::FULL_SHARD, strategy::FullShard>);
  CHECK(same<fsdp::HYBRID_SHARD, strategy::HybridShard>);
  CHECK(same<fsdp::HYBRID_SHARD_ZERO2, strategy::HybridShardGradOp>);
}

TEST_CASE("both worlds mean the same where they say the same") {
  CHECK(same<zero::stage<0>, fsdp::NO_SHARD>);
  CHECK(same<zero::stage<2>, fsdp::SHARD_GRAD_OP>);
  CHECK(same<zero::stage<3>, fsdp::FULL_SHARD>);
  CHECK(same<zero::MiCS, fsdp::HYBRID_SHARD>);
  CHECK_FALSE(same<zero::stage<3>, zero::hpZ>);
}

}  // namespace flatshard
