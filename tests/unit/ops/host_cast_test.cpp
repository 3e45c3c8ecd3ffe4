#include <flatshard/core/error.hpp>

#include <algorithm>

#include "host_kernels.hpp"

using namespace flatshard_test;

namespace {

/// to(source[i]), one element at a time.
std::vector<std::byte> converted(const std::vector<std::byte>& source, DType from, DType to,
                                 Elements count) {
  if (from == to) return source;
  std::vector<std::byte> result(static_cast<std::size_t>(count * size_of(to)));
  for (Elements i = 0; i < count; ++i)
    set_value(result.data(), to, i, value_at(source.data(), from, i));
  return result;
}

void check_cast(DType from, DType to, Elements count, Elements source_offset,
                Elements destination_offset) {
  auto random = generator(static_cast<std::uint64_t>(count));
  const auto elements = random_elements(random, from, count);
  const auto expected = converted(elements, from, to, count);
  Guarded source(from, count, source_offset);
  source.fill(elements);
  for (const NamedDevice& named : devices()) {
    CAPTURE(named.name);
    Guarded destination(to, count, destination_offset);
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.cast(source.data(), from, destination.data(), to, count, stream);
    });
    CHECK(same_elements(destination.data(), expected.data(), to, count));
    CHECK(destination.guards_hold());
  }
}

}  // namespace

TEST_CASE("cast: every pair of floating dtypes equals one rounding per element, on every device") {
  for (DType from : floating)
    for (DType to : floating) {
      CAPTURE(name_of(from));
      CAPTURE(name_of(to));
      for (Elements count : lengths) {
        CAPTURE(count);
        check_cast(from, to, count, 0, 0);
        check_cast(from, to, count, 1, 3);
      }
    }
}

TEST_CASE("cast: long ranges are cut over threads without a seam") {
  for (DType from : {DType::Float32, DType::BFloat16})
    for (DType to : floating) {
      CAPTURE(name_of(from));
      CAPTURE(name_of(to));
      check_cast(from, to, long_length, 1, 1);
    }
}

TEST_CASE("cast: equal dtypes copy bits, integers too; different integers are refused") {
  auto random = generator();
  for (const DTypeInfo& row : dtype_table) {
    CAPTURE(row.name);
    const auto count = static_cast<Elements>(random() % 5000);
    std::vector<std::byte> bits(static_cast<std::size_t>(count * row.bytes));
    for (std::byte& byte : bits) byte = static_cast<std::byte>(random() & 0xff);
    Guarded destination(row.dtype, count);
    for (const NamedDevice& named : devices())
      run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
        kernels.cast(bits.data(), row.dtype, destination.data(), row.dtype, count, stream);
        kernels.cast(destination.data(), row.dtype, destination.data(), row.dtype, count, stream);
        if (!row.floating)
          CHECK_THROWS_WITH_AS(kernels.cast(bits.data(), row.dtype, destination.data(),
                                            DType::Float32, count, stream),
                               doctest::Contains(std::string(row.name).c_str()), UsageError);
      });
    CHECK(destination.copy() == bits);
    CHECK(destination.guards_hold());
  }
}

TEST_CASE("zero: bytes and nothing beside them") {
  for (Elements count : {Elements{0}, Elements{1}, Elements{1023}, long_length})
    for (const NamedDevice& named : devices()) {
      Guarded memory(DType::UInt8, count, 5);
      run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
        kernels.zero(memory.data(), count, stream);
      });
      CHECK(memory.copy() == std::vector<std::byte>(static_cast<std::size_t>(count)));
      CHECK(memory.guards_hold());
    }
}

namespace {

/// Pieces of random lengths at random, ascending places of a flat buffer.
struct Pieces {
  std::vector<FlattenPiece> pieces;
  std::vector<Guarded> tensors;
  Elements flat_size = 0;
  Pieces(std::mt19937_64& random, DType dtype, int number, Elements longest) {
    for (int k = 0; k < number; ++k) {
      const auto count = static_cast<Elements>(random() % static_cast<std::uint64_t>(longest));
      tensors.emplace_back(dtype, random() % 8 == 0 ? 0 : count, random() % 3);
      const Elements present = tensors.back().bytes() / size_of(dtype);
      flat_size += static_cast<Elements>(random() % 40);
      pieces.push_back({nullptr, flat_size, present});
      flat_size += present;
    }
    for (std::size_t k = 0; k < tensors.size(); ++k) pieces[k].tensor = tensors[k].data();
  }
};

void check_pieces(DType tensor, DType flat, int number, Elements longest) {
  auto random = generator(static_cast<std::uint64_t>(number));
  Pieces laid(random, tensor, number, longest);
  for (Guarded& memory : laid.tensors)
    memory.fill(random_elements(random, tensor, memory.bytes() / size_of(tensor)));
  const std::vector<std::byte> poisoned = Guarded(flat, laid.flat_size).copy();
  auto expected = poisoned;
  for (std::size_t k = 0; k < laid.pieces.size(); ++k) {
    const auto part = converted(laid.tensors[k].copy(), tensor, flat, laid.pieces[k].count);
    std::copy(part.begin(), part.end(),
              expected.begin() + laid.pieces[k].flat_offset * size_of(flat));
  }
  for (const NamedDevice& named : devices()) {
    CAPTURE(named.name);
    Guarded memory(flat, laid.flat_size);
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.flatten(laid.pieces, tensor, memory.data(), flat, stream);
    });
    CHECK(same_elements(memory.data(), expected.data(), flat, laid.flat_size));
    CHECK(memory.guards_hold());

    Pieces back = laid;
    for (std::size_t k = 0; k < back.tensors.size(); ++k) {
      back.tensors[k] = Guarded(tensor, back.pieces[k].count, 1);
      back.pieces[k].tensor = back.tensors[k].data();
    }
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.unflatten(back.pieces, memory.data(), flat, tensor, stream);
    });
    for (std::size_t k = 0; k < back.tensors.size(); ++k) {
      const Elements count = back.pieces[k].count;
      const auto narrowed = converted(laid.tensors[k].copy(), tensor, flat, count);
      const auto restored = converted(narrowed, flat, tensor, count);
      CHECK(same_elements(back.tensors[k].data(), restored.data(), tensor, count));
      CHECK(back.tensors[k].guards_hold());
    }
  }
}

}  // namespace

TEST_CASE("flatten puts every piece in its place, unflatten takes it back, nothing else moves") {
  for (DType tensor : {DType::Float32, DType::BFloat16, DType::Float64})
    for (DType flat : {DType::Float32, DType::BFloat16, DType::Float16}) {
      CAPTURE(name_of(tensor));
      CAPTURE(name_of(flat));
      check_pieces(tensor, flat, 0, 1);
      check_pieces(tensor, flat, 1, 3000);
      check_pieces(tensor, flat, 40, 3000);
      check_pieces(tensor, flat, 5, 100000);
    }
}
