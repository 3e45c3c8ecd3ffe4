// CRC32C (Castagnoli, RFC 3720 appendix B.4): digests of ranges that combine to the digest of the
// whole, whoever computed them.
#pragma once

#include <flatshard/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard {

/// crc32c({}, c) == c;  crc32c(b, crc32c(a)) == crc32c(a followed by b). By the processor's
/// instruction where it has one (SSE4.2, found at run time), else by tables.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before = 0);

/// combine_crc32c(crc32c(a), crc32c(b), size of b in bytes) == crc32c(a followed by b).
std::uint32_t combine_crc32c(std::uint32_t a, std::uint32_t b, Bytes bytes_of_b);

namespace detail {
/// The same, always by tables.
std::uint32_t crc32c_by_tables(std::span<const std::byte> data, std::uint32_t before);
}  // namespace detail

}  // namespace flatshard
