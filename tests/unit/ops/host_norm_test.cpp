#include <flatshard/core/error.hpp>

#include "host_kernels.hpp"

using namespace flatshard_test;

namespace {

/// The node's tree, as it is defined: absent elements count as zero.
double square_tree(const std::byte* data, DType dtype, Elements first, Elements count, int level) {
  if (count <= 0) return 0;
  if (level == 0) {
    const double x = value_at(data, dtype, first);
    return x * x;
  }
  const Elements half = Elements{1} << (level - 1);
  const double left = square_tree(data, dtype, first, std::min(half, count), level - 1);
  return left + square_tree(data, dtype, first + half, count - half, level - 1);
}

double largest(const std::byte* data, DType dtype, Elements first, Elements count) {
  double most = 0;
  for (Elements i = first; i < first + count; ++i) {
    const double x = std::fabs(value_at(data, dtype, i));
    if (std::isnan(x)) return x;
    most = std::max(most, x);
  }
  return most;
}

int level_of(Elements count) {
  int level = 0;
  while ((Elements{1} << level) < count) ++level;
  return level;
}

/// Random nodes with gaps between them, of random levels, mostly not full.
std::vector<NormNode> random_nodes(std::mt19937_64& random, int number, Elements longest) {
  std::vector<NormNode> nodes;
  Elements offset = 0;
  for (int k = 0; k < number; ++k) {
    offset += static_cast<Elements>(random() % 5);
    const auto count = static_cast<Elements>(random() % static_cast<std::uint64_t>(longest + 1));
    nodes.push_back({offset, count, level_of(count) + static_cast<int>(random() % 3)});
    offset += count;
  }
  return nodes;
}

void check_nodes(const std::vector<NormNode>& nodes, DType dtype,
                 const std::vector<std::byte>& elements) {
  std::vector<double> sums, maxima;
  for (const NormNode& node : nodes) {
    sums.push_back(square_tree(elements.data(), dtype, node.offset, node.count, node.level));
    maxima.push_back(largest(elements.data(), dtype, node.offset, node.count));
  }
  const auto count = static_cast<Elements>(nodes.size());
  for (const NamedDevice& named : devices()) {
    CAPTURE(named.name);
    Guarded square_sums(DType::Float64, count), absolute_maxima(DType::Float64, count);
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.square_sums(elements.data(), dtype, nodes,
                          reinterpret_cast<double*>(square_sums.data()), stream);
      kernels.absolute_maxima(elements.data(), dtype, nodes,
                              reinterpret_cast<double*>(absolute_maxima.data()), stream);
    });
    CHECK(same_elements(square_sums.data(), reinterpret_cast<std::byte*>(sums.data()),
                        DType::Float64, count));
    CHECK(same_elements(absolute_maxima.data(), reinterpret_cast<std::byte*>(maxima.data()),
                        DType::Float64, count));
    CHECK(square_sums.guards_hold());
    CHECK(absolute_maxima.guards_hold());
  }
}

void check_random(DType dtype, int number, Elements longest, bool finite) {
  CAPTURE(name_of(dtype));
  CAPTURE(number);
  CAPTURE(longest);
  auto random = generator(static_cast<std::uint64_t>(longest));
  const auto nodes = random_nodes(random, number, longest);
  const Elements size = nodes.empty() ? 0 : nodes.back().offset + nodes.back().count;
  check_nodes(nodes, dtype,
              finite ? random_finite(random, dtype, size) : random_elements(random, dtype, size));
}

}  // namespace

TEST_CASE("norm: nodes of every length equal the perfect binary tree, on every device") {
  for (DType dtype : floating) {
    check_random(dtype, 0, 1, true);
    check_random(dtype, 300, 70, true);
    check_random(dtype, 40, 5000, true);
    check_random(dtype, 40, 200, false);
  }
}

TEST_CASE("norm: the lengths around vectors and blocks, each in a node of its own") {
  auto random = generator();
  std::vector<NormNode> nodes;
  Elements offset = 0;
  for (Elements count : lengths) {
    nodes.push_back({offset, count, level_of(count)});
    offset += count + 1;
  }
  for (DType dtype : floating) check_nodes(nodes, dtype, random_finite(random, dtype, offset));
}

TEST_CASE("norm: large nodes are cut over threads and keep their tree") {
  auto random = generator();
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
    const std::vector<NormNode> nodes = {{3, 100, 7},
                                         {200, long_length, level_of(long_length)},
                                         {200 + long_length, 1 << 18, 18},
                                         {500000 + long_length, 70000, 20}};
    check_nodes(nodes, dtype, random_finite(random, dtype, long_length + 600000));
  }
}

TEST_CASE("norm: one bad element is seen wherever it is") {
  auto random = generator();
  for (double bad : {double(NAN), double(INFINITY), -double(INFINITY)})
    for (Elements count : {Elements{1}, Elements{777}, Elements{300001}}) {
      auto elements = random_finite(random, DType::Float32, count);
      set_value(elements.data(), DType::Float32,
                static_cast<Elements>(random() % static_cast<std::uint64_t>(count)), bad);
      check_nodes({{0, count, level_of(count)}}, DType::Float32, elements);
    }
}

TEST_CASE("norm: node values are added, or compared, in the order given") {
  auto random = generator();
  std::vector<double> values, sums, maxima;
  for (int i = 0; i < 20; ++i) values.push_back(std::ldexp(double(random() >> 11), -30));
  values[7] = NAN;
  std::vector<NormAdd> adds;
  for (int i = 0; i < 50; ++i) {
    const int into = static_cast<int>(random() % 20);
    const int from = static_cast<int>(random() % 20);
    if (into != from) adds.push_back({into, from});
  }
  sums = maxima = values;
  for (const NormAdd& add : adds) {
    const auto into = static_cast<std::size_t>(add.into);
    const auto from = static_cast<std::size_t>(add.from);
    sums[into] += sums[from];
    const bool either = std::isnan(maxima[into]) || std::isnan(maxima[from]);
    maxima[into] = either ? NAN : std::max(maxima[into], maxima[from]);
  }
  for (const NamedDevice& named : devices()) {
    auto added = values, compared = values;
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.add_nodes(adds, added.data(), stream);
      kernels.max_nodes(adds, compared.data(), stream);
    });
    const auto bytes = [](std::vector<double>& all) {
      return reinterpret_cast<std::byte*>(all.data());
    };
    CHECK(same_elements(bytes(added), bytes(sums), DType::Float64, 20));
    CHECK(same_elements(bytes(compared), bytes(maxima), DType::Float64, 20));
  }
}
