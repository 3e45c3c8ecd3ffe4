#include <flatshard/ops/random.hpp>
#include <flatshard/tensor/convert.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "random.hpp"

namespace flatshard {
namespace {

constexpr std::uint64_t low_half = 0xffffffff;

// The definition again, in 64-bit arithmetic with explicit truncation.
std::uint64_t naive_mix(std::uint64_t z) {
  z ^= z >> 30;
  z *= 13787848793156543929U;
  z ^= z >> 27;
  z *= 10723151780598845931U;
  return z ^ (z >> 31);
}
std::uint64_t naive_word(std::uint64_t seed, std::uint64_t step, std::uint64_t role,
                         std::uint64_t index) {
  const std::uint64_t of_step = naive_mix(naive_mix(seed) ^ step);
  const std::uint64_t key = naive_mix(of_step ^ ((role << 32) | (index >> 32)));
  std::uint64_t x = (index ^ key) & low_half;
  x = ((x ^ (x >> 17)) * 0xed5ad4bb) & low_half;
  x = ((x ^ (x >> 11)) + (key >> 32)) & low_half;
  x = (x * 0xac4c1b51) & low_half;
  x = ((x ^ (x >> 15)) * 0x31848bab) & low_half;
  return x ^ (x >> 14);
}

struct Vector {
  std::uint64_t seed;
  std::uint64_t step;
  std::uint32_t role;
  std::uint64_t index;
  std::uint32_t word;
};

constexpr Vector vectors[] = {
    {0, 0, 0, 0, 0x00000000},
    {0, 0, 0, 1, 0x042741d6},
    {1, 1, 0, 0, 0x2d30dbde},
    {1, 1, 0, 1, 0x8ba180e2},
    {1, 1, 1, 0, 0x59586a4a},
    {1, 2, 0, 0, 0x72561b37},
    {18446744073709551615U, 1000000000000, 3, 4294967295, 0x0d8fccc0},
    {42, 7, 2, 4294967296, 0x126fde70},
    {42, 7, 2, 1099511640121, 0x3fd88e4d},
    {123456789012345, 1000, 16, 999, 0x4d5d56c4},
};

TEST_CASE("committed words, made by another program") {
  for (const Vector& v : vectors) CHECK(random_word(v.seed, v.step, v.role, v.index) == v.word);
}

TEST_CASE("words follow their definition") {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t seed = random();
    const std::uint64_t step = random();
    const auto role = static_cast<std::uint32_t>(random());
    const std::uint64_t index = random() >> (random() % 64);
    const std::uint32_t word = random_word(seed, step, role, index);
    REQUIRE(word == naive_word(seed, step, role, index));
    const RandomKey key = random_key(seed, step, role, static_cast<std::uint32_t>(index >> 32));
    REQUIRE(word == random_word(key, static_cast<std::uint32_t>(index & low_half)));
  }
}

TEST_CASE("every bit of neighbouring words is fair, alone and beside its neighbour's") {
  constexpr int count = 1 << 18;
  const std::uint64_t seed = flatshard_test::generator()();
  std::vector<int> ones(32), changes(32);
  std::uint32_t previous = random_word(seed, 1, 0, 0);
  for (std::uint64_t index = 1; index <= count; ++index) {
    const std::uint32_t word = random_word(seed, 1, 0, index);
    for (unsigned bit = 0; bit < 32; ++bit) {
      ones[bit] += (word >> bit) & 1;
      changes[bit] += ((word ^ previous) >> bit) & 1;
    }
    previous = word;
  }
  const double limit = 6 * std::sqrt(count) / 2;  // six standard deviations
  for (unsigned bit = 0; bit < 32; ++bit) {
    CHECK(std::fabs(ones[bit] - count / 2) < limit);
    CHECK(std::fabs(changes[bit] - count / 2) < limit);
  }
}

double mean_of_rounding(float x, std::uint64_t seed, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t word = random_word(seed, 1, 0, static_cast<std::uint64_t>(i));
    sum += to_double(stochastic_bf16(x, word));
  }
  return sum / count;
}

TEST_CASE("stochastic rounding is unbiased") {
  auto random = flatshard_test::generator();
  constexpr int count = 1 << 14;
  for (int i = 0; i < 100; ++i) {
    const auto x = static_cast<float>(1 + static_cast<double>(random() >> 12) * 0x1p-52);
    const double spacing = 0x1p-7;
    const double error = mean_of_rounding(i % 2 == 0 ? x : -x, random(), count) -
                         static_cast<double>(i % 2 == 0 ? x : -x);
    CHECK(std::fabs(error) < 6 * spacing / 2 / std::sqrt(count));
  }
}

TEST_CASE("stochastic rounding gives one of the two neighbours, by the upper half of the word") {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto word = static_cast<std::uint32_t>(random());
    const auto x = bit_cast<float>(bits);
    if (std::isnan(x)) continue;
    const bool up = (word >> 16) + (bits & 0xffff) >= 0x10000;
    REQUIRE(stochastic_bf16(x, word).bits == (bits >> 16) + (up ? 1 : 0));
  }
}

TEST_CASE("what is a bf16 already stays, infinity and zero too; NaN stays NaN") {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto x = bit_cast<float>(bits << 16);
    for (const std::uint32_t word : {0U, 0xffffU, 0x8000ffffU, 0xffffffffU}) {
      const Bf16 rounded = stochastic_bf16(x, word);
      REQUIRE(rounded.bits == (std::isnan(x) ? 0x7fff : bits));
    }
  }
  for (const std::uint32_t nan : {0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff800001U})
    CHECK(stochastic_bf16(bit_cast<float>(nan), 0xffffffff).bits == 0x7fff);
}

}  // namespace
}  // namespace flatshard
