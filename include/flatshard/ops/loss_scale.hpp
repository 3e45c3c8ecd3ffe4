// Loss scaling: a small state machine that every rank, and a device by itself, can run. The loss is
// multiplied by scale() before backward; gradients are divided by that same scale afterwards; only
// then does update() move it.
#pragma once

#include <flatshard/config.hpp>

#include <cstdint>

namespace flatshard {

/// Whose rule moves the scale.
enum class ScaleRule : std::int32_t {
  Constant,  // never moves; a step that overflows is still skipped
  Torch,     // torch.amp.GradScaler
  DeepSpeed  // DynamicLossScaler
};

/// What update() found.
enum class ScaleEvent : std::int32_t { Kept, Grew, Dropped, AtMinimum };

/// Settings of a rule; the named constructors of LossScaler give each rule's own defaults.
struct ScaleSettings {
  ScaleRule rule = ScaleRule::Constant;  // whose it is
  double initial = 1;                    // > 0, a float
  double growth = 2;                     // > 1
  double backoff = 0.5;                  // in (0, 1)
  std::int64_t interval = 0;             // steps without overflow from one growth to the next, >= 1
  double minimum = 0;                    // an overflow at this scale is AtMinimum
  std::int64_t hysteresis = 1;           // DeepSpeed: so many overflows make the first drop, >= 1
  bool consecutive = false;      // DeepSpeed: every step without overflow restores the hysteresis
  bool error_at_minimum = true;  // false: stays at the minimum in silence
  friend constexpr bool operator==(const ScaleSettings&, const ScaleSettings&) = default;
};

/// What a checkpoint must carry, all of it.
struct ScaleState {
  float scale = 1;                  // of the next backward
  std::int64_t good_steps = 0;      // Torch: since the last growth or overflow
  std::int64_t step = 0;            // DeepSpeed: updates so far
  std::int64_t last_overflow = -1;  // DeepSpeed: step of the last one
  std::int64_t left = 1;            // DeepSpeed: overflows until the scale drops
  friend constexpr bool operator==(const ScaleState&, const ScaleState&) = default;
};

/// Trivially copyable; lives on the host or in device memory. Scales are floats: growth past the
/// largest finite float does not happen.
struct LossScaler {
  ScaleSettings settings;  // never change
  ScaleState state;        // moved by update()
  friend constexpr bool operator==(const LossScaler&, const LossScaler&) = default;

  /// At its beginning.
  static constexpr LossScaler make(const ScaleSettings& settings) {
    ScaleState state;
    state.scale = static_cast<float>(settings.initial);
    state.left = settings.hysteresis;
    return {settings, state};
  }
  /// scale() == `scale` for ever.
  static constexpr LossScaler constant(double scale) {
    ScaleSettings settings;
    settings.initial = scale;
    return make(settings);
  }
  /// Overflow: scale * backoff. After `interval` steps without one: scale * growth. GradScaler has
  /// no minimum and ends at 0; here the smallest normal float is one.
  static constexpr LossScaler torch(double initial = 65536, double growth = 2, double backoff = 0.5,
                                    std::int64_t interval = 2000) {
    return make({ScaleRule::Torch, initial, growth, backoff, interval, 0x1p-126});
  }
  /// The first overflow only spends hysteresis; the drop does not restore it, growth does.
  static constexpr LossScaler deepspeed(double initial = 65536, std::int64_t window = 1000,
                                        std::int64_t hysteresis = 2, double minimum = 1,
                                        bool consecutive = false, bool error_at_minimum = true) {
    return make({ScaleRule::DeepSpeed, initial, 2, 0.5, window, minimum, hysteresis, consecutive,
                 error_at_minimum});
  }

  /// What the loss is multiplied by.
  FLATSHARD_HOST_DEVICE constexpr float scale() const { return state.scale; }

  /// Moves on after a step whose gradients were finite or not, on all ranks alike. After AtMinimum
  /// the state is what it was.
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent update(bool finite) {
    if (settings.rule == ScaleRule::Torch) return finite ? count_good() : drop();
    if (settings.rule == ScaleRule::DeepSpeed) return finite ? count_stable() : spend();
    return ScaleEvent::Kept;
  }

 private:
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent count_good() {
    if (++state.good_steps < settings.interval) return ScaleEvent::Kept;
    state.good_steps = 0;
    return grow();
  }
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent count_stable() {
    if (settings.consecutive) state.left = settings.hysteresis;
    const std::int64_t stable = state.step++ - state.last_overflow - 1;
    if (stable <= 0 || stable % settings.interval != 0) return ScaleEvent::Kept;
    state.left = settings.hysteresis;
    return grow();
  }
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent spend() {
    ScaleEvent event = ScaleEvent::Kept;
    if (state.left > 1)
      --state.left;
    else
      event = drop();
    if (event != ScaleEvent::AtMinimum) state.last_overflow = state.step++;
    return event;
  }
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent grow() {
    constexpr double largest = 0x1.fffffep127;
    const double grown = static_cast<double>(state.scale) * settings.growth;
    if (grown > largest) return ScaleEvent::Kept;
    state.scale = static_cast<float>(grown);
    return ScaleEvent::Grew;
  }
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent drop() {
    const auto minimum = static_cast<float>(settings.minimum);
    if (state.scale <= minimum)
      return settings.error_at_minimum ? ScaleEvent::AtMinimum : keep_at_minimum();
    const auto dropped = static_cast<float>(static_cast<double>(state.scale) * settings.backoff);
    state.scale = dropped > minimum ? dropped : minimum;
    state.good_steps = 0;
    return ScaleEvent::Dropped;
  }
  FLATSHARD_HOST_DEVICE constexpr ScaleEvent keep_at_minimum() {
    state.good_steps = 0;
    return ScaleEvent::Kept;
  }
};

/// Throws UsageError naming the setting that is out of its range.
void validate(const ScaleSettings& settings);

static_assert(__is_trivially_copyable(LossScaler));

}  // namespace flatshard
