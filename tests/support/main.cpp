#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "random.hpp"

namespace flatshard_test {
namespace {

std::uint64_t fresh_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::uint64_t chosen_seed() {
  const char* text = std::getenv("FLATSHARD_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : fresh_seed();
}

}  // namespace

std::uint64_t seed() {
  static const std::uint64_t value = chosen_seed();
  return value;
}

}  // namespace flatshard_test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (status != 0) {
    std::fprintf(stderr, "random inputs: run again with FLATSHARD_TEST_SEED=%llu\n",
                 static_cast<unsigned long long>(flatshard_test::seed()));
  }
  return status;
}
