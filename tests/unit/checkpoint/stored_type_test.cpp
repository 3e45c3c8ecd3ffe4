#include <doctest/doctest.h>

#include <flatshard/checkpoint/stored_type.hpp>

#include <set>
#include <string_view>

using namespace flatshard::safetensors;

TEST_CASE("each row of the table is at its type's place and is found by its name") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < stored_type_table.size(); ++i) {
    const StoredTypeInfo& row = stored_type_table[i];
    CHECK(static_cast<std::size_t>(row.type) == i);
    CHECK(stored_type_named(row.name) == row.type);
    CHECK(name_of(row.type) == row.name);
    CHECK(names.insert(row.name).second);
  }
}

TEST_CASE("each dtype of ours is stored under its name with its size") {
  for (const flatshard::DTypeInfo& ours : flatshard::dtype_table) {
    const StoredTypeInfo& row = info(stored_type_of(ours.dtype));
    CHECK(row.dtype == ours.dtype);
    CHECK(row.name == ours.safetensors);
    CHECK(row.bits == 8 * ours.bytes);
  }
}

TEST_CASE("names count case and every byte") {
  for (const std::string_view name : {"", "f32", "F32 ", "F3", "F322", "FLOAT32"})
    CHECK_FALSE(stored_type_named(name));
}
