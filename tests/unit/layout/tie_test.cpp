#include <flatshard/core/error.hpp>
#include <flatshard/layout/model.hpp>

#include <doctest/doctest.h>

using namespace flatshard;

namespace {

using Indices = std::vector<int>;

}  // namespace

TEST_CASE("a head tied to the embedding: the storage moves to the root, its index stays") {
  Model model;
  auto embedding = model.module("wte");
  const Parameter weight = embedding.add("weight", {65, 8});
  auto head = model.module("lm_head");
  const Parameter bias = head.add("bias", {65});
  head.tie("weight", weight);

  REQUIRE(model.modules().size() == 3);
  CHECK(model.modules()[2] == ModuleSpec{"", {.uses = 0}, {0}, {}});
  CHECK(model.modules()[0].parameters.empty());
  CHECK(model.modules()[0].tied == Indices{0});
  CHECK(model.modules()[1].parameters == Indices{bias.index});
  CHECK(model.modules()[1].tied == Indices{0});
  CHECK(weight.index == 0);
  CHECK(model.parameters()[0].module == 2);
  CHECK(model.parameters()[0].users == Indices{0, 1});
  CHECK(model.parameters()[0].aliases == std::vector<std::string>{"lm_head.weight"});
  CHECK(model.find("lm_head.weight") == weight);
  CHECK(model.find("wte.weight") == weight);
}

TEST_CASE("a root that a tie made becomes an ordinary module when asked for") {
  Model model;
  const Parameter weight = model.module("a").add("w", {1});
  model.module("b").tie("w", weight);
  CHECK(model.modules()[2].options.uses == 0);
  auto root = model.root({.uses = 3});
  CHECK(root.index() == 2);
  CHECK(model.modules()[2].options.uses == 3);
  CHECK(model.modules()[2].parameters == Indices{0});
}

TEST_CASE("the home is the lowest existing module above all users") {
  Model model;
  model.module("h");
  model.module("h.0");
  const Parameter weight = model.module("h.0.attention").add("w", {1});
  model.module("h.0.mlp").tie("w", weight);
  CHECK(model.parameters()[0].module == 1);
  model.module("h.1").tie("w", weight);
  CHECK(model.parameters()[0].module == 0);
  CHECK(model.modules()[1].parameters.empty());
  model.module("head").tie("w", weight);
  const int root = model.parameters()[0].module;
  CHECK(model.modules()[static_cast<std::size_t>(root)].name == "");
  for (const int user : model.parameters()[0].users) {
    CHECK(model.modules()[static_cast<std::size_t>(user)].tied == Indices{0});
  }
}

TEST_CASE("components are compared whole: h.1 is not above h.10") {
  Model model;
  const Parameter weight = model.module("h.1").add("w", {1});
  model.module("h.10").tie("w", weight);
  CHECK(model.modules().back().name == "");
  CHECK(model.parameters()[0].module == 2);
}

TEST_CASE("a user may be the home, and lists nothing as tied") {
  Model model;
  auto root = model.root();
  const Parameter weight = root.add("w", {1});
  model.module("head").tie("w", weight);
  CHECK(model.parameters()[0].module == 0);
  CHECK(model.modules()[0].tied.empty());
  CHECK(model.modules()[1].tied == Indices{0});
  root.tie("same", weight);
  CHECK(model.parameters()[0].users == Indices{0, 1});
  CHECK(model.modules()[0].tied.empty());
}

TEST_CASE("storages stay in model order in their new home") {
  Model model;
  const Parameter first = model.module("a").add("first", {1});
  model.root().add("second", {1});
  model.module("b").tie("first", first);
  CHECK(model.modules()[1].parameters == Indices{0, 1});
}

TEST_CASE("a tie that cannot be leaves the model as it was") {
  Model model;
  const Parameter weight = model.module("a").add("w", {1});
  auto other = model.module("b");
  other.add("v", {1});
  const Model before = model;
  CHECK_THROWS_WITH_AS(other.tie("w", Parameter{7}), doctest::Contains("parameter 7"), UsageError);
  CHECK_THROWS_AS(other.tie("w", Parameter{}), UsageError);
  CHECK_THROWS_WITH_AS(other.tie("v", weight), doctest::Contains("'b.v'"), UsageError);
  CHECK(model == before);
}
