#include <doctest/doctest.h>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

constexpr auto every_strategy = "same bits for every strategy";
constexpr auto every_split = "every reduce moment and every split";
constexpr auto no_other = "equal to no other strategy";
constexpr auto own_order = "the communicator's own order";

constexpr Accumulation tree = Accumulation::Tree;

/// The Plan promises exactly these, each a piece of a sentence.
bool promises(const Plan& plan, std::initializer_list<const char*> sentences) {
  if (plan.promises.size() != sentences.size()) return false;
  for (const char* words : sentences)
    if (std::none_of(plan.promises.begin(), plan.promises.end(),
                     [&](const std::string& promise) { return says(promise, {words}); }))
      return false;
  return true;
}

template <class Strategy, class Precision = precision::Full<float>>
Plan planned(int world, const Options& options = {}) {
  return plan_for<Strategy, Precision>(equal_modules(2, {100}), world, options);
}

}  // namespace

TEST_CASE("at one micro-step and a power of two of ranks everything is promised") {
  for (const int world : {1, 2, 4, 8})
    for (const auto& strategy : strategies) {
      const Plan plan = make_plan(equal_modules(1, {9}), {strategy.traits, {}, {}, world}, {});
      CHECK(promises(plan, {every_strategy, every_split}));
      CHECK(says(plan.promises[0], {("at world size " + std::to_string(world)).c_str()}));
    }
}

TEST_CASE("at three ranks hybrids of every group size agree with all") {
  CHECK(promises(planned<strategy::FullShard>(3), {every_strategy}));
  CHECK(promises(planned<strategy::HybridShard>(3, {.shard_group = 1}), {every_strategy}));
  CHECK(promises(planned<strategy::HybridShard>(3, {.shard_group = 3}), {every_strategy}));
}

TEST_CASE("groups that are no power of two sum in an order of their own") {
  CHECK(promises(planned<strategy::HybridShard>(6, {.shard_group = 1}), {every_strategy}));
  CHECK(promises(planned<strategy::HybridShard>(6, {.shard_group = 2}), {every_strategy}));
  CHECK(promises(planned<strategy::HybridShard>(6, {.shard_group = 6}), {every_strategy}));
  const Plan three = planned<strategy::HybridShard>(6, {.shard_group = 3});
  CHECK(promises(three, {no_other}));
  CHECK(says(three.promises[0], {"groups of 3", "2 replicas", "world size 6"}));
}

TEST_CASE("splits of the global batch are promised under tree accumulation only") {
  const Options running{.max_micro_steps = 4};
  const Options counter{.max_micro_steps = 4, .accumulation = tree};
  CHECK(promises(planned<strategy::FullShard>(4, running), {every_strategy}));
  CHECK(promises(planned<strategy::FullShard>(4, counter), {every_strategy, every_split}));
  CHECK(promises(planned<strategy::FullShard>(3, counter), {every_strategy}));
  CHECK(promises(planned<strategy::HybridShard>(
                     12, {.max_micro_steps = 4, .accumulation = tree, .shard_group = 3}),
                 {no_other}));
}

TEST_CASE("splits are promised where the reduced and accumulated gradient is as wide as the sum") {
  using strategy::FullShard;
  CHECK(promises(planned<FullShard, precision::Full<double>>(4), {every_strategy, every_split}));
  CHECK(promises(planned<FullShard, precision::Bf16Mixed>(4), {every_strategy, every_split}));
  CHECK(promises(planned<FullShard, precision::Bf16Stochastic>(4), {every_strategy, every_split}));
  CHECK(promises(planned<FullShard, precision::DeepSpeedBf16>(4), {every_strategy}));
  CHECK(promises(planned<FullShard, precision::Fp16Mixed>(4), {every_strategy}));
  CHECK(promises(planned<FullShard, precision::Full<Bf16, Bf16, float>>(4), {every_strategy}));
}

TEST_CASE("a trainable parameter with a dtype of its own counts, a frozen one does not") {
  for (const bool requires_grad : {true, false}) {
    Model model = equal_modules(1, {9});
    model.root().add("own", {9}, {.requires_grad = requires_grad, .dtype = DType::Float32});
    const Plan plan = plan_for<strategy::FullShard, precision::Full<double>>(model, 4);
    if (requires_grad)  // its sums are fp32, what is accumulated is fp64
      CHECK(promises(plan, {every_strategy}));
    else
      CHECK(promises(plan, {every_strategy, every_split}));
  }
}

namespace {

/// What a hybrid that reduces over replicas at the boundary promises first.
template <class Precision = precision::Full<float>>
std::string replica_boundary(int world, int micro_steps, Accumulation accumulation) {
  return planned<strategy::HybridShard, Precision>(world,
                                                   {.max_micro_steps = micro_steps,
                                                    .accumulation = accumulation,
                                                    .reduce_moment = ReduceMoment::ReplicaBoundary,
                                                    .shard_group = 2})
      .promises[0];
}

}  // namespace

TEST_CASE("micro-steps summed inside the group tie the bits to its size, unless by one tree") {
  CHECK(says(replica_boundary(8, 4, Accumulation::Running), {"world size 8, shard group 2"}));
  CHECK_FALSE(says(replica_boundary(8, 4, tree), {"shard group"}));
  CHECK_FALSE(says(replica_boundary<precision::DeepSpeedBf16>(8, 4, tree), {"shard group"}));
  CHECK(says(replica_boundary(6, 4, tree), {"shard group 2"}));
}

TEST_CASE("one micro-step ties the bits to the group only where its sum is rounded") {
  CHECK_FALSE(says(replica_boundary(6, 1, tree), {"shard group"}));
  CHECK_FALSE(says(replica_boundary<precision::DeepSpeedBf16>(6, 1, tree), {"shard group"}));
  CHECK(says(replica_boundary<precision::Full<Bf16>>(8, 1, tree), {"shard group 2"}));
}

TEST_CASE("where the communicator sums in an order of its own, nothing more is promised") {
  PlanRequest request = request_for<strategy::FullShard>(4);
  request.canonical_reduction = false;
  CHECK(promises(make_plan(equal_modules(1, {9}), request, {}), {own_order}));
}
