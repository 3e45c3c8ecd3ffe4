// What a manifest must fulfil, whether it is to be written or was read.
#pragma once

#include <flatshard/checkpoint/manifest.hpp>

#include <string>
#include <string_view>

namespace flatshard::detail {

inline constexpr std::string_view manifest_format = "flatshard checkpoint";

/// "constant", "torch", "deepspeed".
std::string_view name_of(ScaleRule rule);

/// The first rule that the manifest breaks, in words; empty: none.
std::string contradiction_in(const Manifest& manifest);

/// The end of every manifest: its last member, the CRC32C of the text before it.
std::string digest_tail(std::string_view text_before);
inline constexpr std::size_t digest_tail_bytes = 27;

}  // namespace flatshard::detail
