#include <flatshard/io/crc32c.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "random.hpp"

using namespace flatshard;

namespace {

/// Bit by bit, as RFC 3720 defines it.
std::uint32_t by_bits(std::span<const std::byte> data) {
  std::uint32_t digest = 0xffffffff;
  for (const std::byte byte : data) {
    digest ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit)
      digest = (digest & 1) != 0 ? digest >> 1 ^ 0x82f63b78 : digest >> 1;
  }
  return ~digest;
}

std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

struct Known {
  std::uint32_t digest;
  std::vector<std::byte> bytes;
};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> counting(int first, int step) {
  std::vector<std::byte> bytes(32);
  for (std::size_t k = 0; k < 32; ++k)
    bytes[k] = static_cast<std::byte>(first + static_cast<int>(k) * step);
  return bytes;
}

// The first is CRC-32C's check value, the others are RFC 3720's, B.4, without the SCSI command.
const Known known[] = {
    {0xe3069283, bytes_of("123456789")},
    {0x8a9136aa, std::vector<std::byte>(32, std::byte{0})},
    {0x62a8ab43, std::vector<std::byte>(32, std::byte{0xff})},
    {0x46dd794e, counting(0, 1)},
    {0x113fdb5c, counting(31, -1)},
    {0x00000000, {}},
};

}  // namespace

TEST_CASE("crc32c of published inputs") {
  for (const auto& [digest, bytes] : known) {
    CHECK(crc32c(bytes) == digest);
    CHECK(detail::crc32c_by_tables(bytes, 0) == digest);
    CHECK(by_bits(bytes) == digest);
  }
}

TEST_CASE("instruction, tables and single bits agree, at every length and alignment") {
  auto random = flatshard_test::generator();
  const std::vector<std::byte> bytes = random_bytes(random, 60000);
  std::vector<std::size_t> lengths{0, 1, 7, 8, 9, 4095, 4096, 12287, 12288, 12289, 36864, 50001};
  for (int k = 0; k < 20; ++k) lengths.push_back(random() % 50000);
  for (const std::size_t length : lengths) {
    CAPTURE(length);
    const auto part = std::span(bytes).subspan(random() % 9, length);
    const std::uint32_t expected = by_bits(part);
    CHECK(crc32c(part) == expected);
    CHECK(detail::crc32c_by_tables(part, 0) == expected);
  }
}

TEST_CASE("digests continue, and combine whoever made them") {
  auto random = flatshard_test::generator();
  for (int round = 0; round < 50; ++round) {
    const std::vector<std::byte> bytes = random_bytes(random, random() % 40000);
    const std::uint32_t expected = by_bits(bytes);
    std::uint32_t continued = 0, combined = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t most = std::min<std::size_t>(bytes.size() - at, 1 + random() % 9000);
      const auto part = std::span(bytes).subspan(at, most);
      continued = crc32c(part, continued);
      combined = combine_crc32c(combined, by_bits(part), static_cast<Bytes>(most));
      at += most;
    }
    CHECK(continued == expected);
    CHECK(combined == expected);
  }
}

TEST_CASE("combining counts bytes beyond 32 bits") {
  auto random = flatshard_test::generator();
  const auto a = static_cast<std::uint32_t>(random());
  // n zeros after a, and n more, are 2 n zeros: zeros of any number have a digest by doubling.
  std::uint32_t zeros = crc32c(std::vector<std::byte>(1));
  Bytes count = 1;
  for (; count < Bytes{1} << 61; count *= 2) {
    const std::uint32_t twice = combine_crc32c(zeros, zeros, count);
    const std::uint32_t in_two = combine_crc32c(combine_crc32c(a, zeros, count), zeros, count);
    CHECK(in_two == combine_crc32c(a, twice, 2 * count));
    zeros = twice;
  }
  CHECK(combine_crc32c(a, 0, 0) == a);
}
