#include "hmac.hpp"

#include <flatshard/config.hpp>
#include <flatshard/core/error.hpp>

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace flatshard::detail {

namespace {

using Word = std::uint32_t;

constexpr std::array<Word, 64> round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t block_bytes = 64;

Word load_word(const std::byte* bytes) {
  Word word = 0;
  for (int i = 0; i < 4; ++i) word = (word << 8) | std::to_integer<Word>(bytes[i]);
  return word;
}

FLATSHARD_WRAPS std::array<Word, 64> schedule_of(const std::byte* block) {
  std::array<Word, 64> schedule;
  for (std::size_t i = 0; i < 16; ++i) schedule[i] = load_word(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const Word a = schedule[i - 15], b = schedule[i - 2];
    const Word first = std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3);
    const Word second = std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10);
    schedule[i] = schedule[i - 16] + first + schedule[i - 7] + second;
  }
  return schedule;
}

FLATSHARD_WRAPS void mix_block(std::array<Word, 8>& state, const std::byte* block) {
  const std::array<Word, 64> schedule = schedule_of(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const Word sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const Word first = h + sum1 + ((e & f) ^ (~e & g)) + round_constants[i] + schedule[i];
    const Word sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const Word second = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const std::array<Word, 8> mixed{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += mixed[i];
}

/// The message, a one bit, zeros, and the length in bits, to a whole number of blocks.
std::vector<std::byte> padded(std::span<const std::byte> data) {
  std::vector<std::byte> bytes(data.begin(), data.end());
  bytes.push_back(std::byte{0x80});
  while (bytes.size() % block_bytes != block_bytes - 8) bytes.push_back(std::byte{0});
  const std::uint64_t bits = std::uint64_t{data.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<std::byte>((bits >> shift) & 0xff));
  return bytes;
}

}  // namespace

Digest sha256(std::span<const std::byte> data) {
  std::array<Word, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::vector<std::byte> bytes = padded(data);
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) mix_block(state, &bytes[at]);
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>((state[i / 4] >> (24 - 8 * (i % 4))) & 0xff);
  return digest;
}

Digest hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  std::array<std::byte, block_bytes> block{};
  const auto key_bytes = std::as_bytes(std::span(key));
  if (key.size() > block_bytes)
    std::ranges::copy(sha256(key_bytes), block.begin());
  else
    std::ranges::copy(key_bytes, block.begin());
  std::vector<std::byte> inner, outer;
  for (std::byte byte : block) inner.push_back(byte ^ std::byte{0x36});
  for (std::byte byte : block) outer.push_back(byte ^ std::byte{0x5c});
  inner.insert(inner.end(), message.begin(), message.end());
  const Digest digest = sha256(inner);
  outer.insert(outer.end(), digest.begin(), digest.end());
  return sha256(outer);
}

bool equal_digests(const Digest& left, const Digest& right) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    difference |= std::to_integer<unsigned>(left[i] ^ right[i]);
  return difference == 0;
}

Digest random_digest() {
  Digest digest;
  if (getrandom(digest.data(), digest.size(), 0) != static_cast<ssize_t>(digest.size()))
    throw Error("the system gives no random bytes", {__FILE__, __LINE__});
  return digest;
}

}  // namespace flatshard::detail
