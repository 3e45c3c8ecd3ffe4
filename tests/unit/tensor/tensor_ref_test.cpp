#include <flatshard/tensor/tensor_ref.hpp>

#include <doctest/doctest.h>

#include <array>
#include <vector>

namespace flatshard {
namespace {

TEST_CASE("elements of a shape") {
  CHECK(numel_of({}) == 1);  // 0-dim
  CHECK(numel_of(std::vector<std::int64_t>{5}) == 5);
  CHECK(numel_of(std::vector<std::int64_t>{3, 0, 7}) == 0);
  CHECK(numel_of(std::vector<std::int64_t>{1 << 20, 1 << 20, 4}) == std::int64_t{1} << 42);
}

TEST_CASE("a view reads and writes the memory that it was given") {
  std::vector<float> memory{0, 1, 2, 3, 4, 5};
  const std::array<std::int64_t, 2> shape{2, 3};
  const TensorRef<float> view(memory.data(), shape);
  view[4] = 40;
  CHECK(memory[4] == 40);
  CHECK(view.data() == memory.data());
  CHECK(view.numel() == 6);
  CHECK(view.flat().size() == 6);
  CHECK(&view.flat()[5] == &memory[5]);
  CHECK(view.shape().size() == 2);
}

TEST_CASE("a view of constants has the dtype of its elements") {
  static_assert(TensorRef<const Bf16>::dtype() == DType::BFloat16);
  static_assert(TensorRef<double>::dtype() == DType::Float64);
  const Bf16 memory[] = {{0x3f80}};
  const TensorRef<const Bf16> scalar(memory, {});
  CHECK(scalar.numel() == 1);
  CHECK(scalar[0] == Bf16{0x3f80});
}

}  // namespace
}  // namespace flatshard
