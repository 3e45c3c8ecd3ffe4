#include <flatshard/layout/model.hpp>
#include <flatshard/layout/module_name.hpp>

#include <doctest/doctest.h>

#include <algorithm>

#include "cases.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

std::size_t at(Elements index) { return static_cast<std::size_t>(index); }

bool holds(const std::vector<int>& list, int value) {
  return std::count(list.begin(), list.end(), value) == 1;
}

std::string random_name(Random& random) {
  std::string name;
  for (auto depth = between(random, 1, 3); depth > 0; --depth) {
    name = full_name(name, std::to_string(between(random, 0, 11)));
  }
  return name;
}

/// Modules at random depths, each with a parameter, some tied into others.
Model random_model(Random& random) {
  Model model;
  for (int i = 0; i < 12; ++i) {
    auto module = model.module(random_name(random));
    const std::string number = std::to_string(i);
    if (between(random, 0, 1) == 0 || model.parameters().empty()) module.add("w" + number, {2});
    const auto last = static_cast<std::int64_t>(model.parameters().size()) - 1;
    if (between(random, 0, 1) == 0) {
      module.tie("t" + number, Parameter{static_cast<int>(between(random, 0, last))});
    }
  }
  return model;
}

bool covers(const Model& model, const ModuleSpec& outer, const ParameterSpec& parameter) {
  return std::all_of(parameter.users.begin(), parameter.users.end(), [&](int user) {
    return contains_module(outer.name, model.modules()[at(user)].name);
  });
}

}  // namespace

TEST_CASE("a storage lives in one module, above all its users, who list it as tied") {
  auto random = generator(40);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Model model = random_model(random);
    for (int p = 0; p < static_cast<int>(model.parameters().size()); ++p) {
      const ParameterSpec& parameter = model.parameters()[at(p)];
      CHECK(covers(model, model.modules()[at(parameter.module)], parameter));
      for (int m = 0; m < static_cast<int>(model.modules().size()); ++m) {
        const ModuleSpec& module = model.modules()[at(m)];
        CHECK(holds(module.parameters, p) == (parameter.module == m));
        CHECK(holds(module.tied, p) == (holds(parameter.users, m) && parameter.module != m));
        CHECK(std::is_sorted(module.parameters.begin(), module.parameters.end()));
      }
      for (const std::string& alias : parameter.aliases) CHECK(model.find(alias).index == p);
      CHECK(model.find(parameter.name).index == p);
    }
  }
}
