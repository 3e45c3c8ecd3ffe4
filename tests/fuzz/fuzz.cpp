// libFuzzer's entry; FLATSHARD_FUZZ_TARGET is one function of targets.hpp.
#include "targets.hpp"

#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flatshard_test::FLATSHARD_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
