#include <flatshard/layout/nearest_names.hpp>

#include <doctest/doctest.h>

using namespace flatshard;

TEST_CASE("edit distance counts insertions, deletions and replacements") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("weight", "wieght") == 2);
  CHECK(edit_distance("flaw", "lawn") == 2);
}

TEST_CASE("the nearest names come first, ties in the given order") {
  const std::vector<std::string> names{"h.0.bias", "h.1.weight", "h.0.weight", "wte.weight"};
  CHECK(nearest_names("h.0.weigt", names, 2) ==
        std::vector<std::string>{"h.0.weight", "h.1.weight"});
  CHECK(nearest_names("h.2.weight", names, 2) ==
        std::vector<std::string>{"h.1.weight", "h.0.weight"});
  CHECK(nearest_names("x", names, 9).size() == 4);
  CHECK(nearest_names("x", {}).empty());
}
