// Casts, flatten and unflatten: the device against the host, bit for bit.
#include <flatshard/core/error.hpp>

#include "kernels_gpu.hpp"

using namespace flatshard_test;

namespace {

void check_cast(DType from, DType to, Elements count, Elements source_offset, Elements offset) {
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  CAPTURE(count);
  CAPTURE(source_offset);
  CAPTURE(offset);
  auto random = generator(static_cast<std::uint64_t>(count));
  const auto elements = random_elements(random, from, count);
  std::vector<std::byte> expected(static_cast<std::size_t>(count * size_of(to)));
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.cast(elements.data(), from, expected.data(), to, count, stream);
  });
  OnGpu source(from, elements, source_offset), destination(to, count, offset);
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.cast(source.data(), from, destination.data(), to, count, stream);
  });
  CHECK(equals(destination, expected, to));
}

/// Tensors of random lengths and alignments, some empty, and their places in a flat buffer.
struct Tensors {
  std::vector<OnGpu> on_gpu;
  std::vector<std::vector<std::byte>> on_host;
  std::vector<FlattenPiece> gpu_pieces, host_pieces;
  Elements flat_count = 0;

  Tensors(DType dtype, int number, std::mt19937_64& random, bool poisoned) {
    on_gpu.reserve(static_cast<std::size_t>(number));
    on_host.reserve(static_cast<std::size_t>(number));
    for (int k = 0; k < number; ++k) {
      const bool large = k == number / 2;
      const auto count = static_cast<Elements>(large ? 300001 : random() % 5 * (random() % 700));
      const auto offset = static_cast<Elements>(random() % 3 * (random() % 8));
      auto elements = random_elements(random, dtype, count);
      if (poisoned) std::fill(elements.begin(), elements.end(), std::byte{0xa5});
      flat_count += static_cast<Elements>(random() % 2 * (random() % 40));
      on_host.push_back(elements);
      on_gpu.emplace_back(dtype, elements, offset);
      gpu_pieces.push_back({on_gpu.back().data(), flat_count, count});
      host_pieces.push_back({on_host.back().data(), flat_count, count});
      flat_count += count;
    }
  }
};

void check_flatten(DType from, DType to, int number) {
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  CAPTURE(number);
  auto random = generator(static_cast<std::uint64_t>(number));
  Tensors tensors(from, number, random, false);
  std::vector<std::byte> expected(static_cast<std::size_t>(tensors.flat_count * size_of(to)),
                                  std::byte{0xa5});
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.flatten(tensors.host_pieces, from, expected.data(), to, stream);
  });
  OnGpu flat(to, tensors.flat_count, 1);
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.flatten(tensors.gpu_pieces, from, flat.data(), to, stream);
  });
  CHECK(equals(flat, expected, to));
}

void check_unflatten(DType from, DType to, int number) {
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  CAPTURE(number);
  auto random = generator(static_cast<std::uint64_t>(number) + 1000);
  Tensors tensors(to, number, random, true);
  const auto elements = random_elements(random, from, tensors.flat_count);
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.unflatten(tensors.host_pieces, elements.data(), from, to, stream);
  });
  OnGpu flat(from, elements, 2);
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.unflatten(tensors.gpu_pieces, flat.data(), from, to, stream);
  });
  for (std::size_t k = 0; k < tensors.on_gpu.size(); ++k)
    CHECK(equals(tensors.on_gpu[k], tensors.on_host[k], to));
}

}  // namespace

TEST_CASE("cast: every pair, length and alignment") {
  for (DType from : floating)
    for (DType to : floating) {
      for (Elements count : lengths) check_cast(from, to, count, 0, 0);
      for (Elements count : {Elements{1}, Elements{17}, Elements{1025}}) {
        check_cast(from, to, count, 1, 1);
        check_cast(from, to, count, 3, 2);
        check_cast(from, to, count, 0, 15);
      }
      check_cast(from, to, long_length, 3, 3);
    }
}

TEST_CASE("cast: integers copy their bits") {
  for (DType dtype : {DType::Int64, DType::Int32, DType::Int8, DType::UInt8, DType::Bool})
    for (Elements count : {Elements{0}, Elements{1}, Elements{17}, long_length}) {
      check_cast(dtype, dtype, count, 0, 0);
      check_cast(dtype, dtype, count, 1, 3);
    }
}

TEST_CASE("flatten and unflatten: any number of tensors of any length and alignment") {
  for (int number : short_run() ? std::vector{2, 40} : std::vector{1, 2, 40, 500})
    for (auto [from, to] : {std::pair{DType::Float32, DType::Float32},
                            {DType::Float32, DType::BFloat16},
                            {DType::BFloat16, DType::Float32},
                            {DType::BFloat16, DType::BFloat16},
                            {DType::Float16, DType::Float64},
                            {DType::Float8E5M2, DType::Float16}}) {
      check_flatten(from, to, number);
      check_unflatten(from, to, number);
    }
  check_flatten(DType::UInt8, DType::UInt8, 40);
  check_unflatten(DType::Int64, DType::Int64, 40);
  run_on_gpu([](const KernelTable& kernels, StreamRef stream) {
    kernels.flatten({}, DType::Float32, nullptr, DType::Float32, stream);
  });
}

TEST_CASE("zero: any number of bytes, nothing beside them") {
  for (Elements count : {Elements{0}, Elements{1}, Elements{15}, Elements{1025}, long_length}) {
    CAPTURE(count);
    OnGpu memory(DType::UInt8, count, 3);
    run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
      kernels.zero(memory.data(), count, stream);
    });
    CHECK(equals(memory, std::vector<std::byte>(static_cast<std::size_t>(count)), DType::UInt8));
  }
}

TEST_CASE("what cannot be converted and streams of another device are refused") {
  OnGpu memory(DType::Float32, 4);
  const KernelTable& kernels = gpu().kernels();
  CHECK_THROWS_WITH_AS(
      kernels.cast(memory.data(), DType::Int32, memory.data(), DType::Float32, 4, *gpu().stream),
      doctest::Contains("int32 cannot be converted to float32"), UsageError);
  CHECK_THROWS_WITH_AS(
      kernels.add(memory.data(), DType::Bool, memory.data(), DType::Float32, 4, *gpu().stream),
      doctest::Contains("add needs a floating-point dtype, not bool"), UsageError);
  const auto stream = host().make_stream();
  CHECK_THROWS_AS(kernels.zero(memory.data(), 4, *stream), UsageError);
}
