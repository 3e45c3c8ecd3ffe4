// Accumulation, reduction trees and norms: the device against the host, bit for bit.
#include "kernels_gpu.hpp"

using namespace flatshard_test;

namespace {

void check_add(DType addend, DType accumulator, Elements count, Elements offset) {
  CAPTURE(name_of(addend));
  CAPTURE(name_of(accumulator));
  CAPTURE(count);
  CAPTURE(offset);
  auto random = generator(static_cast<std::uint64_t>(count));
  const auto addends = random_elements(random, addend, count);
  auto expected = random_elements(random, accumulator, count);
  OnGpu from(addend, addends, offset), to(accumulator, expected, 1);
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.add(addends.data(), addend, expected.data(), accumulator, count, stream);
  });
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.add(from.data(), addend, to.data(), accumulator, count, stream);
  });
  CHECK(equals(to, expected, accumulator));
}

void check_reduce(int terms, DType contribution, DType result, Elements count, bool in_place) {
  CAPTURE(terms);
  CAPTURE(name_of(contribution));
  CAPTURE(name_of(result));
  CAPTURE(count);
  auto random = generator(static_cast<std::uint64_t>(terms));
  std::vector<std::vector<std::byte>> on_host;
  std::vector<OnGpu> on_gpu;
  std::vector<const void*> host_sources, gpu_sources;
  for (int k = 0; k < terms; ++k) {
    on_host.push_back(k % 3 == 2 ? random_elements(random, contribution, count)
                                 : random_finite(random, contribution, count));
    on_gpu.emplace_back(contribution, on_host.back(), k % 4 == 3 ? 1 : 0);
  }
  for (int k = 0; k < terms; ++k) {
    host_sources.push_back(on_host[static_cast<std::size_t>(k)].data());
    gpu_sources.push_back(on_gpu[static_cast<std::size_t>(k)].data());
  }
  std::vector<std::byte> expected(static_cast<std::size_t>(count * size_of(result)));
  OnGpu separate(result, count, 1);
  OnGpu& sum = in_place ? on_gpu.back() : separate;
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.reduce(host_sources, contribution, expected.data(), result, count, stream);
  });
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.reduce(gpu_sources, contribution, sum.data(), result, count, stream);
  });
  CHECK(equals(sum, expected, result));
}

/// Nodes with gaps between them, mostly not full, some empty.
std::vector<NormNode> random_nodes(std::mt19937_64& random, int number, Elements longest) {
  std::vector<NormNode> nodes;
  Elements offset = 0;
  for (int k = 0; k < number; ++k) {
    offset += static_cast<Elements>(random() % 2 * (random() % 32));
    const auto count = static_cast<Elements>(random() % static_cast<std::uint64_t>(longest + 1));
    int level = 0;
    while ((Elements{1} << level) < count) ++level;
    nodes.push_back({offset, count, level});
    offset += count;
  }
  return nodes;
}

void check_norm(DType dtype, const std::vector<NormNode>& nodes,
                const std::vector<std::byte>& elements, Elements offset) {
  CAPTURE(name_of(dtype));
  CAPTURE(nodes.size());
  const auto count = static_cast<Elements>(nodes.size());
  std::vector<double> sums(nodes.size()), maxima(nodes.size());
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.square_sums(elements.data(), dtype, nodes, sums.data(), stream);
    kernels.absolute_maxima(elements.data(), dtype, nodes, maxima.data(), stream);
  });
  OnGpu buffer(dtype, elements, offset);
  OnGpu gpu_sums(DType::Float64, count), gpu_maxima(DType::Float64, count);
  for (int run = 0; run < 2; ++run)  // the second one finds the counters as the first left them
    run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
      kernels.square_sums(buffer.data(), dtype, nodes, gpu_sums.as<double>(), stream);
      kernels.absolute_maxima(buffer.data(), dtype, nodes, gpu_maxima.as<double>(), stream);
    });
  CHECK(equals(gpu_sums, bytes_of(sums), DType::Float64));
  CHECK(equals(gpu_maxima, bytes_of(maxima), DType::Float64));
}

void check_random_nodes(DType dtype, int number, Elements longest, Elements offset) {
  auto random = generator(static_cast<std::uint64_t>(number * longest));
  const auto nodes = random_nodes(random, number, longest);
  const Elements count = nodes.back().offset + nodes.back().count;
  check_norm(dtype, nodes, random_finite(random, dtype, count), offset);
  check_norm(dtype, nodes, random_elements(random, dtype, count), offset);
}

std::vector<NormAdd> random_adds(std::mt19937_64& random, int number, int values) {
  std::vector<NormAdd> adds;
  while (static_cast<int>(adds.size()) < number) {
    const auto into = static_cast<int>(random() % static_cast<unsigned>(values));
    const auto from = static_cast<int>(random() % static_cast<unsigned>(values));
    if (into != from) adds.push_back({into, from});
  }
  return adds;
}

void check_merge(int number, int value_count) {
  CAPTURE(number);
  CAPTURE(value_count);
  auto random = generator(static_cast<std::uint64_t>(number));
  const auto adds = random_adds(random, number, value_count);
  const auto values = random_finite(random, DType::Float64, value_count);
  auto sums = values, maxima = values;
  OnGpu gpu_sums(DType::Float64, values), gpu_maxima(DType::Float64, values);
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.add_nodes(adds, reinterpret_cast<double*>(sums.data()), stream);
    kernels.max_nodes(adds, reinterpret_cast<double*>(maxima.data()), stream);
  });
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.add_nodes(adds, gpu_sums.as<double>(), stream);
    kernels.max_nodes(adds, gpu_maxima.as<double>(), stream);
  });
  CHECK(equals(gpu_sums, sums, DType::Float64));
  CHECK(equals(gpu_maxima, maxima, DType::Float64));
}

}  // namespace

TEST_CASE("add: every pair, length and alignment") {
  for (DType addend : floating)
    for (DType accumulator : floating) {
      for (Elements count : lengths) check_add(addend, accumulator, count, 1);
      check_add(addend, accumulator, 1025, 2);
      check_add(addend, accumulator, long_length, 1);
    }
}

TEST_CASE("reduce: the tree over any number of contributions") {
  for (DType contribution : floating)
    for (DType result : floating)
      for (int terms : {1, 2, 3, 5, 8, 11}) check_reduce(terms, contribution, result, 1025, false);
  for (int terms : {4, 6, 7, 9, 15, 16, 17, 31, 40, 64, 65, 130})
    for (auto [contribution, result] : {std::pair{DType::Float32, DType::Float32},
                                        {DType::BFloat16, DType::Float32},
                                        {DType::Float64, DType::Float64}})
      check_reduce(terms, contribution, result, 517, false);
  for (Elements count : lengths) check_reduce(3, DType::BFloat16, DType::Float32, count, false);
  for (int terms : {1, 2, 5, 9}) check_reduce(terms, DType::Float32, DType::Float32, 1025, true);
  check_reduce(3, DType::Float32, DType::BFloat16, long_length, false);
}

TEST_CASE("norm: any nodes of any dtype") {
  for (DType dtype : floating) {
    for (Elements longest : {0, 1, 17, 1025, 70000}) check_random_nodes(dtype, 3, longest, 0);
    check_random_nodes(dtype, 3, 70000, 1);
    check_random_nodes(dtype, 33, 40000, 0);
    check_random_nodes(dtype, 700, 600, 0);
  }
  run_on_gpu([](const KernelTable& kernels, StreamRef stream) {
    kernels.square_sums(nullptr, DType::Float32, {}, nullptr, stream);
  });
}

TEST_CASE("norm: a node of more blocks than one merges") {
  for (DType dtype : {DType::Float64, DType::Float32, DType::BFloat16}) {
    auto random = generator(7);
    const Elements blocks = 2 * 1024 + 3, block = 256 * 8 * (16 / size_of(dtype));
    const Elements large = blocks * block - 5;
    const auto tile = random_finite(random, dtype, 100003);
    std::vector<std::byte> elements(static_cast<std::size_t>((large + 77) * size_of(dtype)));
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = tile[i % tile.size()];
    check_norm(dtype, {{64, 13, 4}, {77, large, 40}, {0, 64, 6}}, elements, 0);
  }
}

TEST_CASE("merge: adds in any order, of more values than shared memory holds too") {
  for (int number : {1, 2, 30, 600}) {
    check_merge(number, number + 1);
    check_merge(number, 5000);
  }
  check_merge(3000, 40);
}
