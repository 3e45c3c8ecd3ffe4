#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "../../../src/sharder/carry_plan.hpp"
#include "plan_cases.hpp"

namespace flatshard_test {
namespace {

using detail::CarryPlan;
using detail::Sharded;
using detail::Transfer;
using Kind = StateTensor::Kind;

struct Side {
  Model model;
  PlanRequest request;
  Plan plan;
  Sharded sharded() const { return {plan, model}; }
};

Side random_side(Random& random, const Model& model, int world, int states) {
  for (;;) {
    PlanRequest request;
    request.strategy = strategies[static_cast<std::size_t>(between(random, 0, 6))].traits;
    request.precision = precisions[static_cast<std::size_t>(between(random, 0, 9))].traits;
    request.world = world;
    request.optimizer_states = states;
    Options options;
    options.groups.resize(3);
    options.wrap = random_wrap(random);
    options.shard_group = one_in(random, 2) ? 0 : random_divisor(random, world);
    options.persistence_threshold = between(random, 0, 1) * between(random, 0, 500);
    if (refusal(model, request, options).empty())
      return {model, request, make_plan(model, request, options)};
  }
}

/// Per element: does the rank have it? From the pieces, element by element.
std::vector<bool> held_by(const Side& side, const StateTensor& tensor, Rank rank) {
  std::vector<bool> held(static_cast<std::size_t>(numel_of(shape_of_tensor(side.model, tensor))));
  for (const ShardPiece& piece : pieces_to_load(side.plan, side.model, rank))
    if (piece.tensor == tensor)
      for (Elements i = 0; i < piece.count; ++i)
        held[static_cast<std::size_t>(piece.first + i)] = true;
  return held;
}

void check_transfer(const Side& from, const Side& to, const Transfer& transfer) {
  const auto has = [&](Rank rank) {
    const std::vector<bool> held = held_by(from, transfer.from, rank);
    const auto first = held.begin() + transfer.first;
    return std::all_of(first, first + transfer.count, [](bool here) { return here; });
  };
  if (transfer.root != Transfer::in_place) {
    CHECK(has(transfer.root));
    return;
  }
  for (Rank rank = 0; rank < to.plan.world; ++rank) {
    const std::vector<bool> held = held_by(from, transfer.from, rank);
    const std::vector<bool> needed = held_by(to, transfer.to, rank);
    for (Elements i = 0; i < transfer.count; ++i) {
      const auto at = static_cast<std::size_t>(transfer.first + i);
      CHECK((held[at] || !needed[at]));
    }
  }
}

CarryOverOptions lenient() {
  CarryOverOptions options;
  options.allow_downcast = true;
  return options;
}

TEST_CASE("every element travels once, from a rank that has it, or everybody has it already") {
  Random random = generator(51);
  for (int round = 0; round < 60; ++round) {
    const Model model = random_model(random);
    const int world = static_cast<int>(between(random, 1, 6));
    const int states = static_cast<int>(between(random, 0, 2));
    const Side from = random_side(random, model, world, states);
    const Side to = random_side(random, model, world, states);
    const CarryPlan plan = detail::plan_carry_over(from.sharded(), to.sharded(), lenient());
    CHECK(plan.zeroed.empty());
    std::map<StateTensor, Elements> done;
    for (const Transfer& transfer : plan.transfers) {
      CHECK(transfer.from == transfer.to);
      CHECK(transfer.count > 0);
      CHECK(transfer.first == done[transfer.to]);
      done[transfer.to] += transfer.count;
      check_transfer(from, to, transfer);
    }
    for (const StateTensor& tensor : state_tensors(to.plan, model))
      CHECK(done[tensor] == numel_of(shape_of_tensor(model, tensor)));
  }
}

TEST_CASE("equal Plans and whole copies move nothing") {
  Random random = generator(52);
  for (int round = 0; round < 20; ++round) {
    const Model model = random_model(random);
    const Side same = random_side(random, model, 4, 2);
    const auto all_in_place = [](const CarryPlan& plan) {
      return std::all_of(
          plan.transfers.begin(), plan.transfers.end(),
          [](const Transfer& transfer) { return transfer.root == Transfer::in_place; });
    };
    CHECK(all_in_place(detail::plan_carry_over(same.sharded(), same.sharded(), lenient())));
    Side whole = same;
    whole.request.strategy = strategy_traits<strategy::NoShard>();
    Options options;
    options.groups.resize(3);
    whole.plan = make_plan(model, whole.request, options);
    CHECK(all_in_place(detail::plan_carry_over(whole.sharded(), same.sharded(), lenient())));
  }
}

TEST_CASE("a whole copy takes from every rank of the old shards") {
  const Model model = equal_modules(1, {1024});
  const Plan sharded = plan_for<strategy::FullShard>(model, 4);
  const Plan whole = plan_for<strategy::NoShard>(model, 4);
  const CarryPlan plan = detail::plan_carry_over({sharded, model}, {whole, model}, {});
  REQUIRE(plan.transfers.size() == 4 * 3);  // ranks, parameter and two states
  for (int rank = 0; rank < 4; ++rank)
    CHECK(plan.transfers[static_cast<std::size_t>(rank)] ==
          Transfer{{Kind::Parameter, 0, 0}, {Kind::Parameter, 0, 0}, rank * 256, 256, rank});
}

/// One module "m" with these parameters, all of 8 elements.
Model named(std::initializer_list<const char*> names, const ParameterOptions& options = {}) {
  Model model;
  for (const char* name : names) model.module("m").add(name, {8}, options);
  return model;
}

std::string refused(const Model& from, const Model& to, const CarryOverOptions& options = {},
                    PlanRequest request = request_for<strategy::FullShard>(2)) {
  const Plan old = make_plan(from, request_for<strategy::FullShard>(2), {});
  const Plan fresh = make_plan(to, request, {});
  try {
    detail::plan_carry_over({old, from}, {fresh, to}, options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("what does not fit is refused by name") {
  CHECK(says(refused(named({"a"}), named({"a", "ab"})), {"'m.ab' is new", "near it: m.a"}));
  CHECK(says(refused(named({"a", "b"}), named({"a"})), {"nothing takes parameter 'm.b'"}));
  CarryOverOptions missing, unused;
  missing.allow_missing = true;
  unused.allow_unused = true;
  CHECK(refused(named({"a"}), named({"a", "ab"}), missing).empty());
  CHECK(refused(named({"a", "b"}), named({"a"}), unused).empty());

  Model wide;
  wide.module("m").add("a", {4, 2});
  CHECK(says(refused(named({"a"}), wide), {"'m.a'", "(4, 2)", "(8)"}));

  const auto narrow = request_for<strategy::FullShard, precision::Full<Bf16>>(2);
  CHECK(says(refused(named({"a"}), named({"a"}), {}, narrow),
             {"value of parameter 'm.a' was float32", "bfloat16", "allow_downcast"}));
  CHECK(refused(named({"a"}), named({"a"}), lenient(), narrow).empty());

  Model with_mask = named({"a"}), with_other = named({"a"});
  with_mask.module("m").add_buffer("mask", {3}, DType::Int64);
  with_other.module("m").add_buffer("mask", {3}, DType::Int32);
  CHECK(says(refused(with_mask, with_other), {"buffer 'm.mask' is int32, and was int64"}));
}

TEST_CASE("ties are followed, and a tie of what was two is refused") {
  Model tied = named({"a"});
  tied.module("n").tie("b", {0});
  Model apart = named({"a"});
  apart.module("n").add("b", {8});
  const Plan of_tied = plan_for<strategy::FullShard>(tied, 2);
  const Plan of_apart = plan_for<strategy::FullShard>(apart, 2);
  const CarryPlan plan = detail::plan_carry_over({of_tied, tied}, {of_apart, apart}, {});
  CHECK(plan.sources.at({Kind::State, 1, 1}) == StateTensor{Kind::State, 0, 1});
  CHECK(says(refused(apart, tied), {"'m.a' is tied to 'n.b'", "another parameter"}));
}

TEST_CASE("what begins to train has states of zero, what ceases may be rounded") {
  const Model frozen = named({"a"}, {.requires_grad = false}), free = named({"a"});
  const auto mixed = request_for<strategy::FullShard, precision::Bf16Mixed>(2);
  const Plan of_frozen = make_plan(frozen, mixed, {}), of_free = make_plan(free, mixed, {});
  const CarryPlan begins = detail::plan_carry_over({of_frozen, frozen}, {of_free, free}, {});
  CHECK(begins.zeroed == std::vector<StateTensor>{{Kind::State, 0, 0}, {Kind::State, 0, 1}});
  CHECK(begins.sources.size() == 1);
  const CarryPlan ceases = detail::plan_carry_over({of_free, free}, {of_frozen, frozen}, {});
  CHECK(ceases.zeroed.empty());
  CHECK(ceases.sources.size() == 1);
  // float32 was what forward saw: bfloat16 is not.
  CHECK(says(refused(free, frozen, {}, mixed), {"allow_downcast"}));
}

TEST_CASE("parameters of another time group have a flat of their own, frozen ones need none") {
  Model model = named({"a", "b"});
  model.module("m").add("c", {8}, {.time_group = 1});
  model.module("m").add("d", {8}, {.requires_grad = false, .time_group = 1});
  model.module("m").add("e", {8}, {.requires_grad = false});
  const Plan plan = plan_for<strategy::FullShard>(model, 2);
  CHECK(plan.flat_of_parameter == std::vector<int>{0, 0, 1, 2, 2});
  CHECK(flat_times(plan, model, [](int parameter) { return parameter == 2 ? 7 : 5; }) ==
        std::vector<std::int64_t>{5, 7, 0});
  std::string message;
  try {
    flat_times(plan, model, [](int parameter) { return parameter; });
  } catch (const UsageError& error) {
    message = error.what();
  }
  CHECK(says(message,
             {"'m.a' was updated 0 times", "'m.b' 1 times", "wrap them apart", "time_group"}));
}

}  // namespace
}  // namespace flatshard_test
