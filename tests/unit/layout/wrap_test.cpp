#include <flatshard/core/error.hpp>
#include <flatshard/layout/wrap.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace flatshard;

namespace {

using Labels = std::vector<int>;

Model model_of(const std::vector<std::pair<const char*, Elements>>& modules) {
  Model model;
  for (const auto& [name, numel] : modules) model.module(name).add("w", {numel});
  return model;
}

const Model gpt = model_of({{"wte", 50}, {"h.0", 20}, {"h.1", 20}, {"h.10", 20}, {"", 5}});

}  // namespace

TEST_CASE("each module, and all in one") {
  CHECK(wrap::each_module()(gpt) == Labels{0, 1, 2, 3, 4});
  CHECK(wrap::all_in_one()(gpt) == Labels{0, 0, 0, 0, 0});
  CHECK(wrap::each_module()(Model{}).empty());
  CHECK(wrap::all_in_one()(Model{}).empty());
}

TEST_CASE("up_to merges modules in order, up to and with the limit") {
  CHECK(wrap::up_to(40)(gpt) == Labels{0, 1, 1, 2, 2});
  CHECK(wrap::up_to(39)(gpt) == Labels{0, 1, 2, 3, 3});
  CHECK(wrap::up_to(1)(gpt) == Labels{0, 1, 2, 3, 4});
  CHECK(wrap::up_to(115)(gpt) == Labels{0, 0, 0, 0, 0});
  CHECK(wrap::up_to(114)(gpt) == Labels{0, 0, 0, 0, 1});
}

TEST_CASE("up_to counts storages, not uses, and does not overflow") {
  Model model = model_of({{"a", 10}, {"b", 10}});
  model.module("b").tie("shared", model.find("a.w"));
  CHECK(wrap::up_to(10)(model) == Labels{0, 0, 1});  // a holds nothing now, b 10, the root 10
  const Elements most = std::numeric_limits<Elements>::max();
  CHECK(wrap::up_to(most)(model_of({{"a", most}, {"b", most}})) == Labels{0, 1});
  CHECK_THROWS_WITH_AS(wrap::up_to(0), doctest::Contains("0 elements"), UsageError);
}

TEST_CASE("by_prefix takes the longest prefix, in whole components") {
  CHECK(wrap::by_prefix({"h"})(gpt) == Labels{0, 1, 1, 1, 0});
  CHECK(wrap::by_prefix({"h.1", "wte"})(gpt) == Labels{0, 1, 2, 1, 1});
  CHECK(wrap::by_prefix({"h", "h.1", "nowhere"})(gpt) == Labels{0, 1, 2, 1, 0});
  CHECK(wrap::by_prefix({""})(gpt) == Labels{0, 0, 0, 0, 0});
  CHECK(wrap::by_prefix({})(gpt) == Labels{0, 0, 0, 0, 0});
}
