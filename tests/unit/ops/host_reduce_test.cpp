#include <flatshard/core/error.hpp>
#include <flatshard/ops/reduction_tree.hpp>

#include <algorithm>
#include <span>

#include "host_kernels.hpp"

using namespace flatshard_test;

namespace {

/// T, as it is defined.
template <class Compute>
Compute tree(std::span<const Compute> leaves) {
  if (leaves.size() == 1) return leaves[0];
  const auto k =
      static_cast<std::size_t>(power_of_two_below(static_cast<std::int64_t>(leaves.size())));
  const Compute left = tree(leaves.first(k));
  return left + tree(leaves.subspan(k));
}

template <class Compute>
double tree_of_element(const std::vector<std::vector<std::byte>>& sources, DType dtype,
                       Elements i) {
  std::vector<Compute> leaves;
  for (const auto& source : sources)
    leaves.push_back(static_cast<Compute>(value_at(source.data(), dtype, i)));
  return static_cast<double>(tree<Compute>(leaves));
}

std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>>& sources,
                               DType contribution, DType result, Elements count) {
  std::vector<std::byte> sum(static_cast<std::size_t>(count * size_of(result)));
  for (Elements i = 0; i < count; ++i)
    set_value(sum.data(), result, i,
              contribution == DType::Float64 ? tree_of_element<double>(sources, contribution, i)
                                             : tree_of_element<float>(sources, contribution, i));
  return sum;
}

std::vector<std::vector<std::byte>> random_sources(std::mt19937_64& random, int number, DType dtype,
                                                   Elements count) {
  std::vector<std::vector<std::byte>> sources;
  for (int s = 0; s < number; ++s)
    sources.push_back(number % 2 == 0 ? random_finite(random, dtype, count)
                                      : random_elements(random, dtype, count));
  return sources;
}

/// in_place: destination is source number `target`; < 0: memory of its own.
void check_reduce(int number, DType contribution, DType result, Elements count, int target) {
  auto random = generator(static_cast<std::uint64_t>(number));
  const auto contents = random_sources(random, number, contribution, count);
  const auto expected = reduced(contents, contribution, result, count);
  for (const NamedDevice& named : devices()) {
    CAPTURE(named.name);
    std::vector<Guarded> memory;
    std::vector<const void*> sources;
    for (const auto& content : contents) {
      memory.emplace_back(contribution, count, count % 3);
      memory.back().fill(content);
    }
    for (Guarded& source : memory) sources.push_back(source.data());
    Guarded own(result, count, 1);
    Guarded& destination = target < 0 ? own : memory[static_cast<std::size_t>(target)];
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.reduce(sources, contribution, destination.data(), result, count, stream);
    });
    CHECK(same_elements(destination.data(), expected.data(), result, count));
    CHECK(destination.guards_hold());
    for (int s = 0; s < number; ++s)
      if (s != target) {
        const auto place = static_cast<std::size_t>(s);
        CHECK(memory[place].copy() == contents[place]);
      }
  }
}

}  // namespace

TEST_CASE("reduction tree: the stack of partial sums is as deep as said and gives T") {
  for (int terms = 1; terms <= 300; ++terms) {
    std::vector<std::string> stack, leaves;
    std::size_t deepest = 0;
    const auto merge = [&] {
      const std::string top = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + "+" + top + ")";
    };
    for (int term = 0; term < terms; ++term) {
      leaves.push_back(std::to_string(term));
      stack.push_back(leaves.back());
      deepest = std::max(deepest, stack.size());
      for (int i = merges_after(term + 1); i > 0; --i) merge();
    }
    while (stack.size() > 1) merge();
    const auto nested = [&](const auto& self, std::size_t first, std::size_t size) -> std::string {
      if (size == 1) return leaves[first];
      const auto k = static_cast<std::size_t>(power_of_two_below(static_cast<std::int64_t>(size)));
      return "(" + self(self, first, k) + "+" + self(self, first + k, size - k) + ")";
    };
    CHECK(stack.front() == nested(nested, 0, static_cast<std::size_t>(terms)));
    CHECK(static_cast<int>(deepest) <= reduction_tree_partials(terms) + 1);
  }
}

TEST_CASE("reduce: T over 1 to 17 contributions, every length, on every device") {
  for (int number = 1; number <= 17; ++number)
    for (Elements count : {Elements{0}, Elements{1}, Elements{17}, Elements{511}, Elements{1025}}) {
      CAPTURE(number);
      CAPTURE(count);
      check_reduce(number, DType::Float32, DType::Float32, count, -1);
      check_reduce(number, DType::BFloat16, DType::Float32, count, -1);
      check_reduce(number, DType::Float64, DType::Float64, count, -1);
    }
}

TEST_CASE("reduce: every contribution and result dtype is rounded once, after the sum") {
  for (DType contribution : floating)
    for (DType result : floating) {
      CAPTURE(name_of(contribution));
      CAPTURE(name_of(result));
      check_reduce(3, contribution, result, 1100, -1);
      check_reduce(8, contribution, result, 1100, -1);
    }
}

TEST_CASE("reduce: into any of the sources") {
  for (int number : {1, 2, 3, 5, 8})
    for (int target = 0; target < number; ++target)
      for (Elements count : {Elements{513}, Elements{100001}}) {
        check_reduce(number, DType::Float32, DType::Float32, count, target);
        check_reduce(number, DType::BFloat16, DType::BFloat16, count, target);
      }
}

TEST_CASE("reduce: long ranges are cut over threads without a seam") {
  check_reduce(4, DType::Float32, DType::Float32, long_length, -1);
  check_reduce(3, DType::BFloat16, DType::Float16, long_length, -1);
}

TEST_CASE("reduce: the first contribution is stored, never added to zero") {
  const float negative_zero = -0.0F;
  for (const NamedDevice& named : devices())
    for (std::size_t number : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      const std::vector<const void*> sources(number, &negative_zero);
      float sum = 1;
      run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
        kernels.reduce(sources, DType::Float32, &sum, DType::Float32, 1, stream);
      });
      CHECK(std::signbit(sum));
      CHECK(sum == 0);
    }
}

TEST_CASE("reduce: no contribution, and integers, are refused") {
  float value = 0;
  const std::vector<const void*> one{&value};
  HostDevice device;
  run_on(device, [&](const KernelTable& kernels, StreamRef stream) {
    CHECK_THROWS_AS(kernels.reduce({}, DType::Float32, &value, DType::Float32, 1, stream),
                    UsageError);
    CHECK_THROWS_AS(kernels.reduce(one, DType::Int32, &value, DType::Float32, 1, stream),
                    UsageError);
  });
}

TEST_CASE("add: in fp32 (fp64 for an fp64 accumulator), rounded once, on every device") {
  auto random = generator();
  for (DType addend : floating)
    for (DType accumulator : floating)
      for (Elements count : {Elements{0}, Elements{1}, Elements{33}, Elements{1025}}) {
        CAPTURE(name_of(addend));
        CAPTURE(name_of(accumulator));
        const auto added = random_elements(random, addend, count);
        const auto before = random_elements(random, accumulator, count);
        auto expected = before;
        for (Elements i = 0; i < count; ++i) {
          const double a = value_at(before.data(), accumulator, i);
          const double b = value_at(added.data(), addend, i);
          const double sum = accumulator == DType::Float64
                                 ? a + b
                                 : double(static_cast<float>(a) + static_cast<float>(b));
          set_value(expected.data(), accumulator, i, sum);
        }
        for (const NamedDevice& named : devices()) {
          CAPTURE(named.name);
          Guarded source(addend, count, 1), sum(accumulator, count, 2);
          source.fill(added);
          sum.fill(before);
          run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
            kernels.add(source.data(), addend, sum.data(), accumulator, count, stream);
          });
          CHECK(same_elements(sum.data(), expected.data(), accumulator, count));
          CHECK(sum.guards_hold());
        }
      }
}

TEST_CASE("add: long ranges are cut over threads without a seam") {
  auto random = generator();
  const auto added = random_elements(random, DType::BFloat16, long_length);
  const auto before = random_elements(random, DType::Float32, long_length);
  auto expected = before;
  for (Elements i = 0; i < long_length; ++i)
    set_value(expected.data(), DType::Float32, i,
              double(static_cast<float>(value_at(before.data(), DType::Float32, i)) +
                     static_cast<float>(value_at(added.data(), DType::BFloat16, i))));
  for (const NamedDevice& named : devices()) {
    CAPTURE(named.name);
    auto sum = before;
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.add(added.data(), DType::BFloat16, sum.data(), DType::Float32, long_length, stream);
    });
    CHECK(same_elements(sum.data(), expected.data(), DType::Float32, long_length));
  }
}
