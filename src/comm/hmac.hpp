// SHA-256 (FIPS 180-4), HMAC (RFC 2104) and random bytes, for the rendezvous.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace flatshard::detail {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> data);
Digest hmac_sha256(std::string_view key, std::span<const std::byte> message);
/// Takes the same time wherever the digests differ.
bool equal_digests(const Digest& left, const Digest& right);
/// From the operating system's generator. Throws Error when it has none.
Digest random_digest();

}  // namespace flatshard::detail
