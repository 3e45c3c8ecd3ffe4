#include <doctest/doctest.h>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

using Indices = std::vector<int>;

}  // namespace

TEST_CASE("units follow the wrap policy, calls touch the units of what they use") {
  Model model;
  const Parameter embedding = model.root({.uses = 1}).add("wte", {8});
  model.module("h.0").add("w", {8});
  model.module("h.1").add("w", {8});
  model.module("head").tie("w", embedding);
  const Plan plan = plan_for<strategy::FullShard>(model, 2);
  REQUIRE(plan.units.size() == 4);
  CHECK(plan.units[0].name == "root");
  CHECK(plan.unit_of_module == Indices{0, 1, 2, 3});
  CHECK(plan.units_of_call == std::vector<Indices>{{0}, {1}, {2}, {0, 3}});
  CHECK(plan.units[0].uses == 2);  // root's own call, and head's
  CHECK(plan.units[3].flats.empty());
  const Plan whole = plan_for<strategy::FullShard>(model, 2, {.wrap = wrap::all_in_one()});
  REQUIRE(whole.units.size() == 1);
  CHECK(whole.units[0].uses == 4);
  CHECK(whole.units[0].modules == Indices{0, 1, 2, 3});
}

TEST_CASE("a unit whose calls others may interrupt has buffers of its own") {
  Model model;
  const Parameter shared = model.root().add("shared", {8});
  model.module("a").add("w", {8});
  model.module("b", {.uses = 2}).add("w", {8});
  model.module("c").tie("shared", shared);
  const auto dedicated = [&](const WrapPolicy& wrap) {
    std::vector<bool> result;
    for (const UnitPlan& unit : plan_for<strategy::FullShard>(model, 2, {.wrap = wrap}).units)
      result.push_back(unit.dedicated);
    return result;
  };
  // borrowed by c; used once; used twice; used once
  CHECK(dedicated(wrap::each_module()) == std::vector<bool>{true, false, true, false});
  // root and b with a between them
  CHECK(dedicated([](const Model&) {
          return Indices{0, 1, 0, 2};
        }) == std::vector<bool>{true, false, false});
}

TEST_CASE("dedicated units stay whole from first use to step") {
  Model model;
  model.module("once").add("w", {64});
  model.module("twice", {.uses = 2}).add("w", {64});
  const Plan plan = plan_for<strategy::FullShard>(model, 2);
  CHECK(plan.flats[0].whole == ParametersWhole::PerUse);
  CHECK(plan.flats[1].whole == ParametersWhole::UntilBackward);
  CHECK(plan.block(Role::Whole, 1)->bytes == 64 * 4);
  CHECK(plan.block(Role::GradientUnit, 1)->bytes == 64 * 4);
  CHECK(plan.block(Role::GradientUnit, 0) == nullptr);
}

TEST_CASE("backward overwrites only where every call says so and calls once") {
  const ModuleOptions overwrites{.backward_overwrites = true};
  Model model;
  const Parameter lent = model.module("lends", overwrites).add("w", {8});
  model.module("keeps", overwrites).add("w", {8});
  model.module("adds").add("w", {8});
  model.module("twice", {.uses = 2, .backward_overwrites = true}).add("w", {8});
  model.module("lends.inner", overwrites).tie("w", lent);
  const Plan plan = plan_for<strategy::FullShard>(model, 2);
  std::vector<bool> result;
  for (const UnitPlan& unit : plan.units) result.push_back(unit.backward_overwrites);
  CHECK(result == std::vector<bool>{false, true, false, false, true});
  const Plan merged = plan_for<strategy::FullShard>(model, 2, {.wrap = wrap::all_in_one()});
  CHECK_FALSE(merged.units[0].backward_overwrites);
}

TEST_CASE("only units with gradients are trainable") {
  Model model;
  model.module("frozen").add("w", {8}, {.requires_grad = false});
  model.module("mixed").add("w", {8}, {.requires_grad = false});
  model.module("mixed").add("b", {8});
  model.module("empty");
  const Plan plan = plan_for<strategy::FullShard>(model, 2);
  CHECK_FALSE(plan.units[0].trainable);
  CHECK(plan.units[1].trainable);
  CHECK_FALSE(plan.units[2].trainable);
}
