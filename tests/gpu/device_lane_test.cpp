// A lane beside a device that is not there: a thread that stores numbers takes its place.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../src/core/device_lane.hpp"

using namespace flatshard;
using namespace std::chrono_literals;

namespace {

class FakeEvent final : public Event {
 public:
  void synchronize() override {}
  bool is_complete() const override { return target == 0 || (*number).load() >= target; }
  const std::atomic<std::uint64_t>* number = nullptr;
  std::uint64_t target = 0;
};

class FakeLink final : public detail::LaneLink {
 public:
  std::uint64_t follow(Event&) override { return ++followed; }
  void mark(Event& event, std::uint64_t target) override {
    static_cast<FakeEvent&>(event).number = &departures_;
    static_cast<FakeEvent&>(event).target = target;
  }
  void poll(std::chrono::steady_clock::duration) override {
    ++polls;
    if (broken) throw DeviceError("the device is gone");
  }
  void expect_intact() const override {
    if (aborted) throw CommunicationError(1, "out of ideas");
  }
  const std::atomic<std::uint64_t>& arrivals() const override { return arrivals_; }
  std::atomic<std::uint64_t>& departures() override { return departures_; }
  void arrive() { ++arrivals_; }

  std::uint64_t followed = 0;
  std::atomic<bool> broken{false}, aborted{false};
  std::atomic<int> polls{0};

 private:
  std::atomic<std::uint64_t> arrivals_{0}, departures_{7};  // an earlier lane's
};

struct Rig {
  std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
  detail::DeviceLane lane{link};
  FakeEvent event;
};

}  // namespace

TEST_CASE("device lane: a task waits for the device, the device for the task") {
  Rig rig;
  std::atomic<int> ran{0};
  rig.lane.wait(rig.event);
  rig.lane.enqueue([&] { ++ran; });
  rig.lane.record(rig.event);
  std::this_thread::sleep_for(20ms);
  CHECK(ran == 0);
  CHECK(!rig.event.is_complete());
  CHECK(rig.event.target == 8);
  rig.link->arrive();
  rig.lane.synchronize();
  CHECK(ran == 1);
  CHECK(rig.event.is_complete());
}

TEST_CASE("device lane: more waits and records than its queue holds, issued ahead") {
  Rig rig;
  std::atomic<bool> ends{false};
  std::thread device([&] {
    while (!ends) rig.link->arrive();
  });
  std::atomic<int> ran{0};
  for (int i = 0; i < 2000; ++i) {
    rig.lane.wait(rig.event);
    rig.lane.enqueue([&] { ++ran; });
    rig.lane.record(rig.event);
  }
  rig.lane.synchronize();
  ends = true;
  device.join();
  CHECK(ran == 2000);
  CHECK(rig.link->departures() == 2007);
}

TEST_CASE("device lane: after a task failed, records are complete and waits still order") {
  Rig rig;
  rig.lane.enqueue([] { throw std::runtime_error("poison"); });
  rig.lane.wait(rig.event);
  bool ran = false;
  rig.lane.enqueue([&] { ran = true; });
  rig.lane.record(rig.event);
  std::thread device([&] {
    std::this_thread::sleep_for(10ms);
    rig.link->arrive();
  });
  CHECK_THROWS_WITH(rig.lane.synchronize(), "poison");
  device.join();
  CHECK(rig.event.is_complete());
  CHECK(!ran);
  rig.lane.check();
}

TEST_CASE("device lane: what a device did after collectives were aborted is not worked on") {
  Rig rig;
  bool ran = false;
  rig.lane.wait(rig.event);
  rig.lane.enqueue([&] { ran = true; });
  rig.lane.record(rig.event);
  rig.link->aborted = true;
  rig.link->arrive();
  CHECK_THROWS_AS(rig.lane.synchronize(), CommunicationError);
  CHECK(!ran);
  CHECK(rig.event.is_complete());
}

TEST_CASE("device lane: a device that fails ends the waits, whoever waits for the lane notices") {
  for (const bool by_full_queue : {false, true}) {
    Rig rig;
    rig.lane.wait(rig.event);
    rig.link->broken = true;
    const auto issue = [&] {
      for (int i = 0; by_full_queue && i < 1000; ++i) rig.lane.record(rig.event);
      rig.lane.synchronize();
    };
    CHECK_THROWS_AS(issue(), DeviceError);
    CHECK(rig.link->polls == 1);
    rig.lane.wait(rig.event);  // and later ones at once
    CHECK_THROWS_AS(rig.lane.synchronize(), DeviceError);
  }
}

TEST_CASE("device lane: destruction notices, too") {
  const auto link = std::make_shared<FakeLink>();
  {
    detail::DeviceLane lane(link);
    FakeEvent event;
    lane.wait(event);
    link->broken = true;
  }
  CHECK(link->polls == 1);
}
