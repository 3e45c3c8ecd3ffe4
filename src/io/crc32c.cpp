#include <flatshard/io/crc32c.hpp>

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

// A digest is a polynomial over GF(2) modulo the one of Castagnoli, lowest power in the highest
// bit.
namespace flatshard {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;
constexpr std::uint32_t one = std::uint32_t{1} << 31;  // x^0

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a & 1) != 0 ? a >> 1 ^ polynomial : a >> 1;
}

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t power = one; power != 0; power >>= 1, b = times_x(b))
    if ((a & power) != 0) sum ^= b;
  return sum;
}

// squarings[k] == x^(2^k)
constexpr auto squarings = [] {
  std::array<std::uint32_t, 66> powers{one >> 1};
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = product(powers[k - 1], powers[k - 1]);
  return powers;
}();

/// x^(8 bytes): what so many bytes of zeros multiply a digest by.
constexpr std::uint32_t shift_by(std::uint64_t bytes) {
  std::uint32_t power = one;
  for (std::size_t k = 3; bytes != 0; bytes >>= 1, ++k)
    if ((bytes & 1) != 0) power = product(squarings[k], power);
  return power;
}

// slices[s][b]: the digest of byte b followed by s bytes of zeros.
constexpr auto slices = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t a = byte;
    for (int bit = 0; bit < 8; ++bit) a = times_x(a);
    for (auto& table : tables) {
      table[byte] = a;
      for (int bit = 0; bit < 8; ++bit) a = times_x(a);
    }
  }
  return tables;
}();

// Eight bytes, the first one lowest.
std::uint64_t load(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

std::uint32_t digest_by_tables(const std::byte* data, std::size_t bytes, std::uint32_t a) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const std::uint64_t word = load(data) ^ a;
    a = 0;
    for (std::size_t k = 0; k < 8; ++k) a ^= slices[7 - k][word >> (8 * k) & 0xff];
  }
  for (; bytes > 0; --bytes, ++data)
    a = a >> 8 ^ slices[0][(a ^ std::to_integer<std::uint32_t>(*data)) & 0xff];
  return a;
}

#if defined(__x86_64__)

// The instruction answers after 3 cycles and can begin each cycle: three lanes keep it busy.
constexpr std::size_t lane = 4096;

/// What a lane of zeros makes of a digest, a byte of it at a time.
constexpr auto lane_of_zeros = [] {
  std::array<std::array<std::uint32_t, 256>, 4> tables{};
  for (std::uint32_t k = 0; k < 4; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = product(byte << (8 * k), shift_by(lane));
  return tables;
}();

std::uint32_t past_a_lane(std::uint32_t a) {
  std::uint32_t sum = 0;
  for (std::size_t k = 0; k < 4; ++k) sum ^= lane_of_zeros[k][a >> (8 * k) & 0xff];
  return sum;
}

__attribute__((target("sse4.2"))) std::uint32_t digest_lanes(const std::byte* data,
                                                             std::uint64_t a) {
  std::uint64_t b = 0, c = 0;
  for (std::size_t k = 0; k < lane; k += 8, data += 8) {
    a = _mm_crc32_u64(a, load(data));
    b = _mm_crc32_u64(b, load(data + lane));
    c = _mm_crc32_u64(c, load(data + 2 * lane));
  }
  const std::uint32_t ab =
      past_a_lane(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
  return past_a_lane(ab) ^ static_cast<std::uint32_t>(c);
}

__attribute__((target("sse4.2"))) std::uint32_t digest_by_instruction(const std::byte* data,
                                                                      std::size_t bytes,
                                                                      std::uint32_t a) {
  for (; bytes >= 3 * lane; bytes -= 3 * lane, data += 3 * lane) a = digest_lanes(data, a);
  std::uint64_t wide = a;
  for (; bytes >= 8; bytes -= 8, data += 8) wide = _mm_crc32_u64(wide, load(data));
  a = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes, ++data) a = _mm_crc32_u8(a, std::to_integer<std::uint8_t>(*data));
  return a;
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

#else

std::uint32_t digest_by_instruction(const std::byte* data, std::size_t bytes, std::uint32_t a) {
  return digest_by_tables(data, bytes, a);
}
bool has_instruction() { return false; }

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before) {
  static const auto digest = has_instruction() ? digest_by_instruction : digest_by_tables;
  return ~digest(data.data(), data.size(), ~before);
}

std::uint32_t combine_crc32c(std::uint32_t a, std::uint32_t b, Bytes bytes_of_b) {
  return product(shift_by(static_cast<std::uint64_t>(bytes_of_b)), a) ^ b;
}

std::uint32_t detail::crc32c_by_tables(std::span<const std::byte> data, std::uint32_t before) {
  return ~digest_by_tables(data.data(), data.size(), ~before);
}

}  // namespace flatshard
