#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "../../../src/sharder/update_pace.hpp"

using flatshard::InlineStream;
using flatshard::detail::UpdatePace;

namespace {

/// Milliseconds that a test sets.
struct TestClock {
  using duration = std::chrono::duration<double, std::milli>;
  using time_point = std::chrono::time_point<TestClock, duration>;
  static time_point now() { return time_point(duration(at)); }
  static inline double at = 0;  // of the host
};

/// Steps of a device and of a host that updates, by the pace's decisions; milliseconds per unit.
class Simulation {
 public:
  Simulation(int units, double forward, double backward, double update)
      : units_(units),
        forward_(forward),
        backward_(backward),
        update_(update),
        pace_(units),
        updated_(static_cast<std::size_t>(units), 0) {
    TestClock::at = 0;
  }

  /// Ends when forward has used what the step before updated; returns the updates in backward.
  std::vector<int> step() {
    for (const double ready : updated_) device_ = std::max(device_, ready) + forward_;
    pace_.begin_step();
    std::vector<int> early, late;
    for (int unit = units_ - 1; unit >= 0; --unit) {
      device_ += backward_;
      TestClock::at = std::max(TestClock::at, device_);
      const bool now = pace_.decide_next();
      pace_.note_arrival(lane_);
      (now ? early : late).push_back(unit);
      if (now) update(unit);
      pace_.note_work(lane_);
    }
    pace_.note_late(lane_);
    for (auto unit = late.rbegin(); unit != late.rend(); ++unit) update(*unit);
    pace_.note_end(lane_, static_cast<int>(late.size()));
    return early;
  }
  double milliseconds_per_step() {
    for (int warm = 0; warm < 40; ++warm) step();
    const double start = device_;
    for (int counted = 0; counted < 10; ++counted) step();
    return (device_ - start) / 10;
  }

 private:
  void update(int unit) {
    TestClock::at += update_;
    updated_[static_cast<std::size_t>(unit)] = TestClock::at;
  }

  int units_;
  double forward_, backward_, update_;
  UpdatePace<TestClock> pace_;
  std::vector<double> updated_;  // per unit
  double device_ = 0;
  InlineStream lane_;
};

}  // namespace

TEST_CASE("update pace: what is left until the end is spread over the model, its ends apart") {
  Simulation start(32, 1, 2, 3);  // half of the updates are early at first
  const std::vector<int> early = start.step();
  REQUIRE(early.size() == 16);
  CHECK(early.front() == 31);
  CHECK(early.back() == 1);
  for (std::size_t i = 1; i < early.size(); ++i) CHECK(early[i - 1] - early[i] == 2);
}

TEST_CASE("update pace: a fast host leaves nothing until the end") {
  Simulation fast(24, 1, 2, 0.5);
  for (int step = 0; step < 20; ++step) fast.step();
  CHECK(fast.step().size() == 24);
}

TEST_CASE("update pace: of the host's time in a long forward some is used") {
  Simulation spare(32, 2, 1, 1);
  for (int step = 0; step < 20; ++step) spare.step();
  const std::size_t early = spare.step().size();
  CHECK(early >= 20);
  CHECK(early <= 26);
}

TEST_CASE("update pace: the host is not left behind when backward ends") {
  Simulation behind(32, 4, 0.4, 1);
  CHECK(behind.step().size() == 16);
  for (int step = 0; step < 20; ++step) behind.step();
  CHECK(behind.step().size() < 16);
}

TEST_CASE("update pace: steps take little more than the device or the host alone") {
  for (const int units : {24, 32, 96})
    for (const double update : {0.1, 1.0, 2.0, 2.7, 3.0, 3.3, 4.0, 6.0, 12.0}) {
      CAPTURE(units);
      CAPTURE(update);
      Simulation simulation(units, 1, 2, update);
      const double bound = units * std::max(3.0, update);
      CHECK(simulation.milliseconds_per_step() <= 1.1 * bound);
    }
}

TEST_CASE("update pace: a model without units that train, or with one") {
  Simulation none(0, 1, 2, 3), one(1, 1, 2, 3);
  for (int step = 0; step < 5; ++step) {
    CHECK(none.step().empty());
    CHECK(one.step().size() <= 1);
  }
}
