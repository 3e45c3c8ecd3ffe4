#include <flatshard/tensor/dtype.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace flatshard {
namespace {

template <class Element>
void check_row(DType dtype) {
  CHECK(dtype_of<Element> == dtype);
  CHECK(size_of(dtype) == static_cast<Bytes>(sizeof(Element)));
}

TEST_CASE("rows stand at their enumerator's place and name each dtype once") {
  std::set<std::string_view> names;
  std::set<std::string_view> safetensors;
  for (std::size_t k = 0; k < dtype_table.size(); ++k) {
    const DTypeInfo& row = dtype_table[k];
    CHECK(static_cast<std::size_t>(row.dtype) == k);
    CHECK(&info(row.dtype) == &row);
    names.insert(row.name);
    safetensors.insert(row.safetensors);
  }
  CHECK(names.size() == dtype_table.size());
  CHECK(safetensors.size() == dtype_table.size());
}

TEST_CASE("the element type of each row has its size") {
  check_row<double>(DType::Float64);
  check_row<float>(DType::Float32);
  check_row<Bf16>(DType::BFloat16);
  check_row<Half>(DType::Float16);
  check_row<Float8E4M3>(DType::Float8E4M3);
  check_row<Float8E5M2>(DType::Float8E5M2);
  check_row<std::int64_t>(DType::Int64);
  check_row<std::int32_t>(DType::Int32);
  check_row<std::int8_t>(DType::Int8);
  check_row<std::uint8_t>(DType::UInt8);
  check_row<bool>(DType::Bool);
}

TEST_CASE("only floating dtypes train") {
  for (const DTypeInfo& row : dtype_table)
    CHECK(is_floating(row.dtype) == (row.dtype <= DType::Float8E5M2));
}

}  // namespace
}  // namespace flatshard
