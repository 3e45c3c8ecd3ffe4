// Who waits for a stream of a CUDA device looks at the collectives of all of them. Needs no device.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <thread>

#include "../../src/core/cuda_stream.hpp"

using namespace flatshard;
using namespace std::chrono_literals;

namespace {

struct Counter final : detail::StreamMonitor {
  void poll(std::chrono::steady_clock::duration) override { ++polls; }
  int polls = 0;
};

struct Rig {
  std::shared_ptr<detail::DeviceMonitors> device = std::make_shared<detail::DeviceMonitors>();
  std::shared_ptr<detail::StreamMonitors> with = made(), without = made();
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();

  std::shared_ptr<detail::StreamMonitors> made() const {
    auto stream = std::make_shared<detail::StreamMonitors>(device);
    device->add(stream);
    return stream;
  }
};

}  // namespace

TEST_CASE("monitors: a stream without collectives polls those of its device") {
  Rig rig;
  CHECK(rig.without->empty());
  rig.with->add(rig.counter);
  rig.with->add(rig.counter);
  CHECK(!rig.without->empty());
  rig.without->poll(1ms);
  CHECK(rig.counter->polls == 1);
  rig.with->poll(1ms);
  CHECK(rig.counter->polls == 2);
  rig.with.reset();  // the stream goes
  CHECK(rig.without->empty());
  rig.without->poll(1ms);
  CHECK(rig.counter->polls == 2);
}

TEST_CASE("monitors: a thread that issues no collectives does not look at them") {
  Rig rig;
  rig.with->add(rig.counter);
  std::thread([&] {
    CHECK(rig.without->empty());
    rig.without->poll(1ms);
    rig.with->poll(1ms);  // the stream's own, as it asked for that stream
  }).join();
  CHECK(rig.counter->polls == 1);
}

TEST_CASE("monitors: a stream that knows no device polls its own") {
  const Rig rig;
  detail::StreamMonitors adopted;
  CHECK(adopted.empty());
  adopted.add(rig.counter);
  adopted.poll(1ms);
  CHECK(rig.counter->polls == 1);
  CHECK(adopted.device() == nullptr);
}

TEST_CASE("monitors: an abort is counted, and the last reason kept") {
  const Rig rig;
  CHECK(rig.device->aborts() == 0);
  for (const int rank : {3, 1})
    rig.device->note_abort(std::make_exception_ptr(CommunicationError(rank, "gone")));
  CHECK(rig.device->aborts() == 2);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(rig.device->abort_reason()), "rank 1: gone",
                       CommunicationError);
}
