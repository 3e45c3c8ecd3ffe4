// The Plan as a value: equality, purity, and what it prints.
#include <doctest/doctest.h>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

Model small_model() {
  Model model;
  const Parameter embedding = model.root({.uses = 2}).add("wte", {37, 5});
  model.module("h.0").add("weight", {11, 7});
  model.module("h.0").add("bias", {7}, {.group = 1});
  model.module("h.1").add("weight", {11, 7}, {.requires_grad = false});
  model.module("h.1").add_buffer("mask", {6}, DType::Bool);
  model.module("head").tie("weight", embedding);
  return model;
}

Options small_options() {
  Options options{.max_micro_steps = 2, .accumulation = Accumulation::Tree};
  options.groups = {{}, {1.0, false}};
  return options;
}

Plan small_plan() {
  return plan_for<strategy::HybridShard, precision::Bf16Mixed>(small_model(), 4, small_options());
}

/// A change to one field makes a Plan another one.
template <class Change>
bool matters(Change&& change) {
  const Plan plan = small_plan();
  Plan changed = plan;
  change(changed);
  return !(changed == plan) && !(plan == changed);
}

}  // namespace

TEST_CASE("make_plan is a pure function: every rank makes the same Plan") {
  for_random_cases(31, [](const PlanCase& made) {
    const Model copy = made.model;
    CHECK(make_plan(copy, made.request, made.options) == made.plan);
  });
}

TEST_CASE("every field matters to equality") {
  CHECK(matters([](Plan& p) { p.request.canonical_reduction = false; }));
  CHECK(matters([](Plan& p) { p.request.optimizer_states = 1; }));
  CHECK(matters([](Plan& p) { p.request.strategy.secondary_shard = true; }));
  CHECK(matters([](Plan& p) { p.request.precision.rounding = Rounding::Stochastic; }));
  CHECK(matters([](Plan& p) { p.request.offload.optimizer = Tier::Host; }));
  CHECK(matters([](Plan& p) { p.world = 8; }));
  CHECK(matters([](Plan& p) { p.shard_group = 1; }));
  CHECK(matters([](Plan& p) { p.replicas = 1; }));
  CHECK(matters([](Plan& p) { p.secondary_group = 2; }));
  CHECK(matters([](Plan& p) { p.moment = ReduceMoment::Boundary; }));
  CHECK(matters([](Plan& p) { p.max_micro_steps = 3; }));
  CHECK(matters([](Plan& p) { p.accumulation = Accumulation::Running; }));
  CHECK(matters([](Plan& p) { p.gather_slots += 1; }));
  CHECK(matters([](Plan& p) { p.gradient_slot_bytes += 1; }));
  CHECK(matters([](Plan& p) { p.landing_bytes += 1; }));
  CHECK(matters([](Plan& p) { p.norm_passes = 2; }));
  CHECK(matters([](Plan& p) { p.units[0].uses = 9; }));
  CHECK(matters([](Plan& p) { p.units[1].backward_overwrites = true; }));
  CHECK(matters([](Plan& p) { p.flats[0].label = "x"; }));
  CHECK(matters([](Plan& p) { p.flats[1].runs[0][0].group = 1; }));
  CHECK(matters([](Plan& p) { p.flats[1].partition = Partition(1, 2, 1); }));
  CHECK(matters([](Plan& p) { p.units_of_call[0].push_back(1); }));
  CHECK(matters([](Plan& p) { p.slot_of_parameter[0] = 1; }));
  CHECK(matters([](Plan& p) { p.canonical = CanonicalIndex({}); }));
  CHECK(matters([](Plan& p) { p.norm.root += 1; }));
  CHECK(matters([](Plan& p) { p.blocks[0].offset += 128; }));
  CHECK(matters([](Plan& p) { p.arena_bytes += 128; }));
  CHECK(matters([](Plan& p) { p.promises.pop_back(); }));
}

TEST_CASE("roles have names of their own") {
  std::vector<std::string_view> names;
  for (int role = 0; role < role_count; ++role) names.push_back(name_of(static_cast<Role>(role)));
  CHECK(std::count(names.begin(), names.end(), "") == 0);
  std::sort(names.begin(), names.end());
  CHECK(std::unique(names.begin(), names.end()) == names.end());
}

TEST_CASE("bytes of a role are the sum of its blocks; a block that is not there is null") {
  const Plan plan = small_plan();
  CHECK(plan.bytes(Role::State) ==
        2 * (plan.block(Role::State, 0, 0)->bytes + plan.block(Role::State, 1, 0)->bytes));
  CHECK(plan.block(Role::State, 2) == nullptr);  // frozen
  CHECK(plan.block(Role::State, 0, 2) == nullptr);
  CHECK(plan.block(Role::RegisteredData, 0)->bytes == 6);
}

TEST_CASE("the Plan prints") {
  // Change this table when what a Plan holds, or how it reads, is meant to change.
  CHECK(to_string(small_plan()) == R"(world size 4, shard group 2, replicas 2
dtypes: master float32, compute and gather bfloat16, reduce float32, accumulate float32, state float32
micro-steps up to 2, tree accumulation, gradients reduced every micro-step

bytes per rank, device memory:
  master                              1024
  compute shard                        640
  whole parameters                     512
  gradient                            1024
  partial sums                        1024
  optimizer state                     2048
  gather ring                         1024
  gradient ring                        512
  gradient of a unit                   512
  control                              728
  registered buffers                     6
  alignment and skew                   290
  all                                 9344

unit/flat                         elements         slice     grad  whole
root/0                                 185           128      yes  from first use to step
h.0/0                                  135           128      yes  per use
h.1/0                                   77            64   frozen  per use

collectives of a step of 2 micro-steps, bytes sent per rank:
  parameters  all_gather      shard group          9 calls              1792
  gradients   reduce_scatter  shard group          4 calls              1024
  gradients   all_reduce      replicas             4 calls              2048
  norm        all_gather      shard group          1 calls                24

promised:
  same bits for every strategy, wrap, prefetch, cap, stream form, thread count and instruction set at world size 4, this count of micro-steps and this reduce moment
  same bits for every reduce moment and every split of the global batch into W * K micro-batches, W and K powers of two
)");
}
