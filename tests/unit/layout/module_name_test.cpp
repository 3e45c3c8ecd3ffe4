#include <flatshard/layout/module_name.hpp>

#include <doctest/doctest.h>

using namespace flatshard;

TEST_CASE("a module contains itself and what is below, in whole components") {
  CHECK(contains_module("", ""));
  CHECK(contains_module("", "h.0"));
  CHECK(contains_module("h.0", "h.0"));
  CHECK(contains_module("h", "h.0.mlp"));
  CHECK_FALSE(contains_module("h.1", "h.10"));
  CHECK_FALSE(contains_module("h.0", "h"));
  CHECK_FALSE(contains_module("h", ""));
  CHECK_FALSE(contains_module("h", "head"));
}

TEST_CASE("a dotted name has no empty component") {
  for (const char* name : {"h", "h.0", "h.0.mlp.weight", "a b"}) CHECK(is_dotted_name(name));
  for (const char* name : {"", ".", ".h", "h.", "h..0"}) CHECK_FALSE(is_dotted_name(name));
}

TEST_CASE("the root adds nothing to a name") {
  CHECK(full_name("", "weight") == "weight");
  CHECK(full_name("h.0", "mlp.weight") == "h.0.mlp.weight");
}
