#include <flatshard/core/error.hpp>
#include <flatshard/layout/model.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace flatshard;

TEST_CASE("modules and parameters keep their order, names are hierarchical") {
  Model model;
  auto block = model.module("h.0");
  auto root = model.root();
  const Parameter weight = block.add("mlp.weight", {3072, 768});
  const Parameter scale = root.add("scale", {});
  CHECK(model.modules()[0].name == "h.0");
  CHECK(model.modules()[1].name == "");
  CHECK(model.parameters()[0].name == "h.0.mlp.weight");
  CHECK(model.parameters()[1].name == "scale");
  CHECK(weight.index == 0);
  CHECK(scale.index == 1);
  CHECK(model.modules()[1].parameters == std::vector<int>{1});
  CHECK(model.find("h.0.mlp.weight") == weight);
  CHECK(model.module("h.0").index() == block.index());
}

TEST_CASE("0-dim and zero-element parameters keep their shape") {
  Model model;
  auto root = model.root();
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{0, 8}, Shape{4, 0}, Shape{1, 17}}) {
    root.add("p" + std::to_string(model.parameters().size()), shape);
    CHECK(model.parameters().back().shape == shape);
  }
  CHECK(model.parameters()[0].numel() == 1);
  CHECK(model.parameters()[2].numel() == 0);
  CHECK(model.parameters()[4].numel() == 17);
}

TEST_CASE("options travel with the parameter") {
  Model model;
  model.root().add("frozen", {2}, {.requires_grad = false, .dtype = DType::Float32, .group = 2});
  const ParameterOptions& options = model.parameters()[0].options;
  CHECK_FALSE(options.requires_grad);
  CHECK(options.dtype == DType::Float32);
  CHECK(options.group == 2);
}

TEST_CASE("one name stands for one thing") {
  Model model;
  model.module("h.0").add("weight", {2});
  CHECK_THROWS_WITH_AS(model.module("h").add("0.weight", {2}), doctest::Contains("'h.0.weight'"),
                       UsageError);
  CHECK_THROWS_AS(model.module("h.0").add_buffer("weight", {2}, DType::Int64), UsageError);
  model.root().add_buffer("mask", {4, 4}, DType::Bool);
  CHECK_THROWS_AS(model.root().add("mask", {2}), UsageError);
  CHECK(model.parameters().size() == 1);
  CHECK(model.modules()[0].parameters == std::vector<int>{0});
}

TEST_CASE("names with an empty component are refused") {
  Model model;
  auto root = model.root();
  for (const char* name : {"", ".w", "w.", "a..w"})
    CHECK_THROWS_AS(root.add(name, {1}), UsageError);
  for (const char* name : {".", "h.", ".h", "h..0"}) {
    CHECK_THROWS_WITH_AS(model.module(name), doctest::Contains(name), UsageError);
  }
}

TEST_CASE("shapes that cannot be are refused by name") {
  Model model;
  auto root = model.root();
  const Elements large = Elements{1} << 32;
  CHECK_THROWS_WITH_AS(root.add("w", {3, -1}), doctest::Contains("'w': shape (3, -1)"), UsageError);
  CHECK_THROWS_WITH_AS(root.add("w", {large, large}), doctest::Contains("2^63 - 1"), UsageError);
  CHECK_THROWS_AS(root.add("w", {large, large, 0}), UsageError);
  CHECK_THROWS_AS(root.add_buffer("b", {0, large, large}, DType::Bool), UsageError);
  root.add("largest", {std::numeric_limits<Elements>::max()});
  CHECK(model.parameters()[0].numel() == std::numeric_limits<Elements>::max());
  CHECK(model.parameters().size() == 1);
}

TEST_CASE("a parameter has a floating dtype and a group from 0") {
  Model model;
  auto root = model.root();
  CHECK_THROWS_WITH_AS(root.add("ids", {2}, {.dtype = DType::Int64}), doctest::Contains("int64"),
                       UsageError);
  CHECK_THROWS_AS(root.add("w", {2}, {.group = -1}), UsageError);
  for (const DTypeInfo& row : dtype_table) {
    if (row.floating) CHECK_NOTHROW(root.add(std::string{row.name}, {2}, {.dtype = row.dtype}));
  }
}

TEST_CASE("registered buffers of any dtype") {
  Model model;
  const RegisteredBuffer mask = model.module("h.0").add_buffer("mask", {8, 8}, DType::Bool);
  CHECK(model.buffers()[0] == BufferSpec{"h.0.mask", {8, 8}, DType::Bool, 0});
  CHECK(model.buffers()[0].numel() == 64);
  CHECK(mask.index == 0);
  CHECK(model.parameters().empty());
}

TEST_CASE("module options: set once, never contradicted") {
  Model model;
  model.module("h.0");
  model.module("h.0", {.uses = 2});
  CHECK(model.modules()[0].options.uses == 2);
  model.module("h.0");
  model.module("h.0", {.uses = 2});
  CHECK(model.modules()[0].options.uses == 2);
  CHECK_THROWS_WITH_AS(model.module("h.0", {.uses = 3}), doctest::Contains("'h.0'"), UsageError);
  CHECK_THROWS_WITH_AS(model.module("h.1", {.uses = 0}), doctest::Contains("uses is 0"),
                       UsageError);
}

TEST_CASE("an unknown name is answered with the nearest ones") {
  Model model;
  for (const char* name : {"h.0", "h.1", "h.2"}) model.module(name).add("weight", {1});
  model.root().add_buffer("h.0.weigh", {1}, DType::Int8);
  CHECK_THROWS_WITH_AS(model.find("h.0.wieght"),
                       doctest::Contains("'h.0.wieght'; the nearest of 3 names: h.0.weight, "),
                       UsageError);
  CHECK_THROWS_AS(model.find("h.0.weigh"), UsageError);  // a buffer is no parameter
  CHECK_THROWS_AS(Model{}.find("w"), UsageError);
}

TEST_CASE("a model is a plain value") {
  Model model;
  model.module("h").add("w", {2});
  Model copy = model;
  CHECK(copy == model);
  copy.module("h").add("v", {2});
  CHECK(copy != model);
  CHECK(model.parameters().size() == 1);
}
