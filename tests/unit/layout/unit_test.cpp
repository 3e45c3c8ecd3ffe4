#include <flatshard/core/error.hpp>
#include <flatshard/layout/unit.hpp>

#include <doctest/doctest.h>

using namespace flatshard;

namespace {

using Indices = std::vector<int>;

Model three_modules() {
  Model model;
  model.module("a").add("w", {4});
  model.module("b").add("w", {5});
  model.root().add("w", {6});
  model.module("a").add("v", {7});
  return model;
}

WrapPolicy labels(Indices numbers) {
  return [numbers](const Model&) { return numbers; };
}

}  // namespace

TEST_CASE("one unit per module holds its parameters in model order") {
  const Model model = three_modules();
  CHECK(assign_units(model, wrap::each_module()) ==
        std::vector<Unit>{{"a", {0}, {0, 3}}, {"b", {1}, {1}}, {"root", {2}, {2}}});
}

TEST_CASE("merged modules: parameters in model order, not in module order") {
  const Model model = three_modules();
  CHECK(assign_units(model, wrap::all_in_one()) ==
        std::vector<Unit>{{"a..root", {0, 1, 2}, {0, 1, 2, 3}}});
  CHECK(assign_units(model, wrap::up_to(11)) ==
        std::vector<Unit>{{"a", {0}, {0, 3}}, {"b..root", {1, 2}, {1, 2}}});
}

TEST_CASE("a policy's numbers are labels: units are numbered in order of first module") {
  const Model model = three_modules();
  const std::vector<Unit> units = assign_units(model, labels({2, 0, 2}));
  CHECK(units == std::vector<Unit>{{"a..root", {0, 2}, {0, 2, 3}}, {"b", {1}, {1}}});
  CHECK(unit_of(units, 0) == 0);
  CHECK(unit_of(units, 1) == 1);
  CHECK(unit_of(units, 2) == 0);
}

TEST_CASE("a model without modules has no units") {
  CHECK(assign_units(Model{}, wrap::each_module()).empty());
  CHECK(assign_units(Model{}, wrap::all_in_one()).empty());
}

TEST_CASE("a wrong policy is refused with the numbers") {
  const Model model = three_modules();
  CHECK_THROWS_WITH_AS(assign_units(model, labels({0, 1})),
                       doctest::Contains("2 numbers for 3 modules"), UsageError);
  CHECK_THROWS_WITH_AS(assign_units(model, labels({0, 3, 0})),
                       doctest::Contains("unit 3 for module 'b'"), UsageError);
  CHECK_THROWS_WITH_AS(assign_units(model, labels({0, 0, -1})), doctest::Contains("unit -1"),
                       UsageError);
  CHECK_THROWS_WITH_AS(assign_units(model, WrapPolicy{}), doctest::Contains("empty"), UsageError);
}

TEST_CASE("a call touches its own unit and those of the storages tied into it") {
  Model model = three_modules();
  auto head = model.module("head");
  head.tie("w", model.find("a.w"));
  head.tie("v", model.find("a.v"));
  const std::vector<Unit> units = assign_units(model, wrap::each_module());
  CHECK(touched_units(model, units, head.index()) == Indices{2, 3});
  CHECK(touched_units(model, units, 0) == Indices{0, 2});
  CHECK(touched_units(model, units, 1) == Indices{1});
  CHECK(touched_units(model, units, 2) == Indices{2});
  CHECK(touched_units(model, assign_units(model, wrap::all_in_one()), 0) == Indices{0});
  CHECK_THROWS_AS(touched_units(model, units, 9), UsageError);
}
