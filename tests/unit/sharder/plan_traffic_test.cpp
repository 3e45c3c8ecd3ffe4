// Collectives of a step against tables written by hand: 1024 elements in one unit, world size 4,
// groups of 2.
#include <doctest/doctest.h>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

const Traffic norm_over_4{"all_gather", "shard group", 1, 3 * 8, "norm"};
const Traffic norm_over_2{"all_gather", "shard group", 1, 1 * 8, "norm"};

// fp32: a slice is 256 elements over the world, 512 over a group. Bytes of one call:
constexpr Bytes over_4 = 3 * 256 * 4;             // all_gather, reduce_scatter
constexpr Bytes over_2 = 1 * 512 * 4;             //
constexpr Bytes all_reduce_over_4 = 3 * 256 * 8;  // of 1024 elements: reduce_scatter, all_gather
constexpr Bytes all_reduce_over_2 = 1 * 256 * 8;  // of 512 elements

Traffic gathers(int calls, Bytes bytes, const char* over = "shard group") {
  return {"all_gather", over, calls, calls * bytes, "parameters"};
}
Traffic scatters(int calls, Bytes bytes) {
  return {"reduce_scatter", "shard group", calls, calls * bytes, "gradients"};
}
Traffic reduces(int calls, Bytes bytes) {
  return {"all_reduce", "replicas", calls, calls * bytes, "gradients"};
}

template <class Strategy, class Precision = precision::Full<float>>
std::vector<Traffic> traffic_of(int micro_steps, std::optional<ReduceMoment> moment = {}) {
  const Options options{.max_micro_steps = micro_steps, .reduce_moment = moment};
  return traffic(plan_for<Strategy, Precision>(equal_modules(1, {1024}), 4, options), micro_steps);
}

using Table = std::vector<Traffic>;
constexpr auto boundary = ReduceMoment::Boundary;
constexpr auto micro = ReduceMoment::Micro;
constexpr auto replica_boundary = ReduceMoment::ReplicaBoundary;

}  // namespace

TEST_CASE("NoShard all-reduces gradients and gathers nothing") {
  using namespace strategy;
  for (const int k : {1, 2}) {
    CHECK(traffic_of<NoShard>(k) == Table{reduces(1, all_reduce_over_4)});
    CHECK(traffic_of<NoShard>(k, boundary) == Table{reduces(1, all_reduce_over_4)});
    CHECK(traffic_of<NoShard>(k, micro) == Table{reduces(k, all_reduce_over_4)});
  }
}

TEST_CASE("ShardOptimizer reduces to owners and gathers what they updated") {
  using namespace strategy;
  for (const int k : {1, 2}) {
    const Table once{gathers(1, over_4), scatters(1, over_4), norm_over_4};
    CHECK(traffic_of<ShardOptimizer>(k) == once);
    CHECK(traffic_of<ShardOptimizer>(k, boundary) == once);
    CHECK(traffic_of<ShardOptimizer>(k, micro) ==
          Table{gathers(1, over_4), scatters(k, over_4), norm_over_4});
  }
}

TEST_CASE("ShardGradOp gathers once a step, FullShard for every forward and backward") {
  using namespace strategy;
  for (const int k : {1, 2}) {
    CHECK(traffic_of<ShardGradOp>(k) ==
          Table{gathers(1, over_4), scatters(k, over_4), norm_over_4});
    CHECK(traffic_of<ShardGradOp>(k, boundary) ==
          Table{gathers(1, over_4), scatters(1, over_4), norm_over_4});
    CHECK(traffic_of<FullShard>(k) ==
          Table{gathers(2 * k, over_4), scatters(k, over_4), norm_over_4});
    CHECK(traffic_of<FullShard>(k, boundary) ==
          Table{gathers(2 * k, over_4), scatters(1, over_4), norm_over_4});
  }
}

TEST_CASE("FullShardSecondary gathers over the world once, then inside the group") {
  for (const int k : {1, 2}) {
    const Traffic inside = gathers(2 * k - 1, over_2, "secondary group");
    CHECK(traffic_of<strategy::FullShardSecondary>(k) ==
          Table{gathers(1, over_4), inside, scatters(k, over_4), norm_over_4});
    CHECK(traffic_of<strategy::FullShardSecondary>(k, boundary) ==
          Table{gathers(1, over_4), inside, scatters(1, over_4), norm_over_4});
  }
}

TEST_CASE("hybrids gather and reduce inside the group, then all-reduce over replicas") {
  using namespace strategy;
  for (const int k : {1, 2}) {
    const auto rest = [&](Traffic gathered, int scattered, int reduced) {
      return Table{gathered, scatters(scattered, over_2), reduces(reduced, all_reduce_over_2),
                   norm_over_2};
    };
    const Traffic each = gathers(2 * k, over_2);
    CHECK(traffic_of<HybridShard>(k) == rest(each, k, k));
    CHECK(traffic_of<HybridShard>(k, boundary) == rest(each, 1, 1));
    CHECK(traffic_of<HybridShard>(k, replica_boundary) == rest(each, k, 1));
    const Traffic once = gathers(1, over_2);
    CHECK(traffic_of<HybridShardGradOp>(k) == rest(once, k, k));
    CHECK(traffic_of<HybridShardGradOp>(k, boundary) == rest(once, 1, 1));
    CHECK(traffic_of<HybridShardGradOp>(k, replica_boundary) == rest(once, k, 1));
  }
}

TEST_CASE("bf16 travels as bf16, sums as fp32, results in the reduce dtype") {
  using namespace strategy;
  const Bytes bf16_over_4 = 3 * 256 * 2;
  const Bytes bf16_over_2 = 512 * 2;
  CHECK(traffic_of<FullShard, precision::Bf16Mixed>(2) ==
        Table{gathers(4, bf16_over_4), scatters(2, bf16_over_4), norm_over_4});
  CHECK(traffic_of<FullShard, precision::Bf16Mixed>(2, boundary) ==
        Table{gathers(4, bf16_over_4), scatters(1, over_4), norm_over_4});
  CHECK(traffic_of<HybridShard, precision::Bf16Mixed>(1) ==
        Table{gathers(2, bf16_over_2), scatters(1, bf16_over_2), reduces(1, all_reduce_over_2),
              norm_over_2});
  CHECK(traffic_of<HybridShard, precision::DeepSpeedBf16>(1) ==
        Table{gathers(2, bf16_over_2), scatters(1, bf16_over_2), reduces(1, 256 * (4 + 2)),
              norm_over_2});
  CHECK(traffic_of<HybridShard, precision::Bf16Mixed>(2, replica_boundary) ==
        Table{gathers(4, bf16_over_2), scatters(2, bf16_over_2), reduces(1, all_reduce_over_2),
              norm_over_2});
  CHECK(traffic_of<NoShard, precision::Bf16Mixed>(2, micro) ==
        Table{reduces(2, 3 * 256 * (2 + 4))});
  CHECK(traffic_of<NoShard, precision::DeepSpeedBf16>(2) == Table{reduces(1, 3 * 256 * (4 + 2))});
}

TEST_CASE("the norm of fp64 gradients is exchanged twice") {
  const Table table = traffic_of<strategy::FullShard, precision::Full<double>>(1);
  CHECK(table.back() == Traffic{"all_gather", "shard group", 2, 2 * 3 * 8, "norm"});
}

TEST_CASE("frozen parameters are gathered and never reduced; persistent ones are published") {
  Model frozen;
  frozen.root().add("w", {1024}, {.requires_grad = false});
  CHECK(traffic(plan_for<strategy::FullShard>(frozen, 4), 1) == Table{gathers(2, over_4)});
  CHECK(traffic(plan_for<strategy::ShardOptimizer>(frozen, 4), 1).empty());
  const Options options{.max_micro_steps = 3, .persistence_threshold = 1024};
  CHECK(traffic(plan_for<strategy::FullShard>(equal_modules(1, {1024}), 4, options), 3) ==
        Table{gathers(1, over_4), scatters(3, over_4), norm_over_4});
}

TEST_CASE("a unit that is used twice is gathered once a step") {
  Model model;
  model.module("embedding", {.uses = 2}).add("w", {1024});
  CHECK(traffic(plan_for<strategy::FullShard>(model, 4), 1) ==
        Table{gathers(1, over_4), scatters(1, over_4), norm_over_4});
}

TEST_CASE("one rank talks to nobody") {
  for (const auto& strategy : strategies)
    CHECK(
        traffic(make_plan(equal_modules(2, {1024}), {strategy.traits, {}, {}, 1}, {}), 1).empty());
}
