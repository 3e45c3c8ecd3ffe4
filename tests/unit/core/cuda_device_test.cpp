// What a program is told where there is no CUDA device; with one, tests/gpu has the rest.
#include <doctest/doctest.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>

#include <string>

using namespace flatshard;

namespace {

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a CUDA device that is not there is refused") {
  const int count = cuda_device_count();
  REQUIRE(count >= 0);
  CHECK_FALSE(refusal([&] { CudaDevice device(count); }).empty());
  CHECK_FALSE(refusal([] { CudaDevice device(-1); }).empty());
}

TEST_CASE("streams that are none of CUDA's are refused") {
  InlineStream stream;
  CHECK_FALSE(refusal([&] { cuda_stream(stream); }).empty());
  CHECK_FALSE(refusal([] { adopt_cuda_stream(nullptr); }).empty());
}
