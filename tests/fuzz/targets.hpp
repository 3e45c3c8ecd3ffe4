// What is fuzzed. Each takes any bytes, lets only the reader's own exception pass unnoticed, and
// throws std::logic_error when something accepted does not keep its promises.
#pragma once

#include <cstddef>
#include <span>

namespace flatshard_test {

void fuzz_header(std::span<const std::byte> bytes);
void fuzz_index(std::span<const std::byte> bytes);
void fuzz_manifest(std::span<const std::byte> bytes);

}  // namespace flatshard_test
