#include <flatshard/core/error.hpp>
#include <flatshard/ops/loss_scale.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace flatshard {
namespace {

/// The scale after each update; 'x' is an overflow, any other letter a good step.
std::vector<double> scales_after(LossScaler& scaler, const char* steps) {
  std::vector<double> scales;
  for (; *steps != 0; ++steps) {
    scaler.update(*steps != 'x');
    scales.push_back(static_cast<double>(scaler.scale()));
  }
  return scales;
}

int steps_until_growth(LossScaler& scaler) {
  for (int steps = 1; steps < 10000; ++steps)
    if (scaler.update(true) == ScaleEvent::Grew) return steps;
  return -1;
}

using Scales = std::vector<double>;

TEST_CASE("torch: defaults") {
  LossScaler scaler = LossScaler::torch();
  CHECK(scaler.scale() == 65536);
  CHECK(steps_until_growth(scaler) == 2000);
  CHECK(scaler.scale() == 131072);
  CHECK(steps_until_growth(scaler) == 2000);
}

TEST_CASE("torch: every overflow backs off and restarts the count") {
  LossScaler scaler = LossScaler::torch(16, 2, 0.5, 3);
  CHECK(scales_after(scaler,
                     "gg"
                     "x"
                     "gg"
                     "g"
                     "xx"
                     "ggg") == Scales{16, 16, 8, 8, 8, 16, 8, 4, 4, 4, 8});
}

TEST_CASE("torch: no growth past the largest float") {
  LossScaler scaler = LossScaler::torch(0x1p126, 2, 0.5, 1);
  CHECK(scaler.update(true) == ScaleEvent::Grew);
  CHECK(scaler.update(true) == ScaleEvent::Kept);
  CHECK(scaler.scale() == 0x1p127F);
}

TEST_CASE("torch: ends at the smallest normal float instead of zero") {
  LossScaler scaler = LossScaler::torch(0x1p-125, 2, 0.5, 1);
  CHECK(scaler.update(false) == ScaleEvent::Dropped);
  CHECK(scaler.update(false) == ScaleEvent::AtMinimum);
  CHECK(scaler.scale() == 0x1p-126F);
}

TEST_CASE("deepspeed (a): a drop does not restore the hysteresis, growth does") {
  LossScaler scaler = LossScaler::deepspeed(1024, 4, 2);
  CHECK(scales_after(scaler,
                     "x"
                     "x"
                     "x"
                     "g"
                     "x") == Scales{1024, 512, 256, 256, 128});
  CHECK(steps_until_growth(scaler) == 5);
  CHECK(scales_after(scaler, "xx") == Scales{256, 128});  // the first one only spends again
}

TEST_CASE("deepspeed (b): the first growth is at step number `window`, counted from 0") {
  LossScaler scaler = LossScaler::deepspeed(8, 5);
  CHECK(steps_until_growth(scaler) == 6);
  CHECK(steps_until_growth(scaler) == 5);
}

TEST_CASE("deepspeed (c): after an overflow at step t the scale grows at t + 1 + window") {
  LossScaler scaler = LossScaler::deepspeed(8, 5);
  scales_after(scaler, "ggx");
  CHECK(scaler.state.last_overflow == 2);
  CHECK(steps_until_growth(scaler) == 6);
  CHECK(scaler.state.step - 1 == 2 + 1 + 5);
}

TEST_CASE("deepspeed (d): growth ends only where floats end") {
  LossScaler scaler = LossScaler::deepspeed(1, 1);
  for (int i = 0; i < 300; ++i) scaler.update(true);
  CHECK(scaler.scale() == 0x1p127F);
}

TEST_CASE("(e), (f): a constant scale never moves") {
  LossScaler one = LossScaler::constant(1);
  LossScaler scaler = LossScaler::constant(128);
  CHECK(scales_after(one, "gxgx") == Scales{1, 1, 1, 1});
  CHECK(scales_after(scaler, "gxxx") == Scales{128, 128, 128, 128});
  CHECK(scaler.update(false) == ScaleEvent::Kept);
}

TEST_CASE("deepspeed (g): the state, not the scale alone, decides how it goes on") {
  const char* const later = "ggggxxggggggx";
  LossScaler scaler = LossScaler::deepspeed(64, 4, 3);
  scales_after(scaler, "ggxg");
  LossScaler restored = LossScaler::make(scaler.settings);
  LossScaler forgetful = restored;
  restored.state = scaler.state;
  forgetful.state.scale = scaler.state.scale;
  const Scales expected = scales_after(scaler, later);
  CHECK(scales_after(restored, later) == expected);
  CHECK(scales_after(forgetful, later) != expected);
}

TEST_CASE("deepspeed: with `consecutive` only overflows in a row drop the scale") {
  LossScaler scaler = LossScaler::deepspeed(64, 100, 2, 1, true);
  CHECK(scales_after(scaler,
                     "xgxgxx"
                     "x") == Scales{64, 64, 64, 64, 64, 32, 16});
}

TEST_CASE("deepspeed: at the minimum an overflow is an event that leaves the state alone") {
  LossScaler scaler = LossScaler::deepspeed(3, 100, 1, 1);
  CHECK(scaler.update(false) == ScaleEvent::Dropped);
  CHECK(scaler.scale() == 1.5F);
  CHECK(scaler.update(false) == ScaleEvent::Dropped);
  CHECK(scaler.scale() == 1);  // not below the minimum
  const LossScaler before = scaler;
  CHECK(scaler.update(false) == ScaleEvent::AtMinimum);
  CHECK(scaler == before);
  LossScaler silent = LossScaler::deepspeed(1, 100, 1, 1, false, false);
  CHECK(silent.update(false) == ScaleEvent::Kept);
  CHECK(silent.state.last_overflow == 0);
}

TEST_CASE("settings out of range are refused") {
  const auto refuses = [](const LossScaler& scaler) {
    try {
      validate(scaler.settings);
    } catch (const UsageError&) {
      return true;
    }
    return false;
  };
  CHECK(!refuses(LossScaler::torch()));
  CHECK(!refuses(LossScaler::deepspeed()));
  CHECK(!refuses(LossScaler::constant(1024)));
  CHECK(refuses(LossScaler::constant(0)));
  CHECK(refuses(LossScaler::constant(1e39)));
  CHECK(refuses(LossScaler::torch(NAN)));
  CHECK(refuses(LossScaler::torch(1, 1)));
  CHECK(refuses(LossScaler::torch(1, 2, 1)));
  CHECK(refuses(LossScaler::torch(1, 2, 0.5, 0)));
  CHECK(refuses(LossScaler::deepspeed(1, 1, 0)));
  CHECK(refuses(LossScaler::deepspeed(1, 1, 1, 2)));
}

}  // namespace
}  // namespace flatshard
