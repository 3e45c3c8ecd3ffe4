#include <flatshard/comm/faulty.hpp>
#include <flatshard/comm/solo.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/ops/host_device.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "worlds.hpp"

using namespace conformance;
using namespace std::chrono_literals;

namespace {

std::int64_t milliseconds(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin)
      .count();
}

}  // namespace

TEST_CASE("the n-th call fails, counted over parts, and no other") {
  const auto kernels = make_host_kernels({});
  Solo solo(*kernels);
  FaultyCommunicator comm(solo, {.fail_call = 4});
  InlineStream stream;
  float x = 0;
  comm.synchronize();
  const auto part = comm.split(0, 0);
  part->all_gather("x", &x, &x, 1, DType::Float32, stream);
  CHECK(comm.calls() == 3);
  CHECK(message_of([&] { part->broadcast("y", &x, 1, DType::Float32, 0, stream); }) ==
        "injected failure at call 4: broadcast \"y\" of 1 float32 from rank 0");
  part->all_gather("x", &x, &x, 1, DType::Float32, stream);
  CHECK(comm.calls() == 5);
}

TEST_CASE("a failure on the stream shows where the stream shows its errors") {
  const auto kernels = make_host_kernels({});
  Solo solo(*kernels);
  FaultyCommunicator comm(solo, {.fail_call = 1, .on_stream = true});
  const auto stream = make_host_stream(StreamForm::Threaded);
  float x = 0;
  const std::string text = message_of([&] {
    comm.all_gather("x", &x, &x, 1, DType::Float32, *stream);
    stream->synchronize();
  });
  CHECK(text == "injected failure at call 1: all_gather \"x\" of 1 float32");
}

TEST_CASE("only the named rank is concerned") {
  const auto kernels = make_host_kernels({});
  Solo solo(*kernels);
  FaultyCommunicator comm(solo, {.delay = 10s, .delay_rank = 1, .fail_call = 1, .fail_rank = 1});
  CHECK(milliseconds([&] { comm.synchronize(); }) < 5000);
}

TEST_CASE("every n-th call is delayed: the issuing thread, or the stream") {
  const auto kernels = make_host_kernels({});
  Solo solo(*kernels);
  float x = 0;
  constexpr std::int64_t delay = 100;
  for (bool on_stream : {false, true}) {
    std::int64_t first = delay, issuing = delay;  // the shortest of five: others take time, too
    for (int round = 0; round < 5; ++round) {
      FaultyCommunicator comm(
          solo,
          {.delay = std::chrono::milliseconds(delay), .delay_every = 2, .on_stream = on_stream});
      const auto stream = make_host_stream(StreamForm::Threaded);
      const auto call = [&] { comm.all_gather("x", &x, &x, 1, DType::Float32, *stream); };
      first = std::min(first, milliseconds([&] { call(), stream->synchronize(); }));
      issuing = std::min(issuing, milliseconds(call));
      stream->synchronize();
      CHECK(milliseconds([&] { call(), call(), stream->synchronize(); }) >= delay);
    }
    CHECK(first < delay);
    CHECK((issuing < delay) == on_stream);
  }
}
